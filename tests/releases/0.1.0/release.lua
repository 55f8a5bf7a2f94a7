local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
local ARG = {}
for i = 1, #ARGV, 2 do ARG[ARGV[i]] = ARGV[i + 1] end
local BASE = string.sub(L, 1, -6) -- without 'lease': the names of the channels begin with it
local OPEN, ENDS = BASE .. 'open', BASE .. 'ends' -- see journal.lua
local QUEUE_MS = 900000  -- a queue that no waiter looks after is forgotten
local SWEPT = 100        -- no script forgets more members that have run out
local value = redis.pcall('GET', K) -- a token or a mark; false when the lock is free; nil when the key is of another type
local shape -- of a mark: the claim of its members
if type(value) == 'table' then
if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
value = nil
elseif value and string.sub(value, 1, 1) == 's' then
local nonce = '%.' .. string.rep('%x', 16) .. '$'
shape = string.match(value, '^(shared)' .. nonce) or string.match(value, '^(slots:%d+)' .. nonce)
end
local us    -- the server's clock
local unswept -- more members may have run out
local more    -- the line has not been passed on to its end: leave.lua without arguments goes on
local function digits(n)
return string.format('%.0f', n)
end
local function server_us()
if not us then
local t = redis.pcall('TIME')
us = t.err and 0 or t[1] * 1000000 + t[2]
end
return us
end
local function server_ms()
return math.floor(server_us() / 1000)
end
local function mine(token)
if not token or token == '' then return false end
if not shape then return value == token end
return (tonumber(redis.call('ZSCORE', M, token)) or 0) > server_ms()
end
local function delete_mark()
local done = redis.call('ZCARD', M) > 1000 and redis.pcall('UNLINK', K, L, M, P)
if type(done) ~= 'number' then redis.call('DEL', K, L, M, P) end
value, shape = false, nil
end
local function last_deadline()
local last = redis.call('ZRANGE', M, -1, -1, 'WITHSCORES')[2]
if last and tonumber(last) > server_ms() then return last end
delete_mark()
end
local function settle()
local last = last_deadline()
if not last then return end
for _, key in ipairs({K, L, M, P}) do redis.call('PEXPIREAT', key, last) end
if redis.call('EXISTS', K) == 0 then value, shape = false, nil end
end
local function forget(members)
local records = {}
for i, member in ipairs(members) do records[i] = BASE .. 'member:' .. member end
redis.call('ZREM', M, unpack(members))
redis.call('ZREM', P, unpack(members))
redis.call('DEL', unpack(records))
end
local function flat(fields)
local list = {}
for name, field in pairs(fields) do
if field then
list[#list + 1] = name
list[#list + 1] = field
end
end
return list
end
local function answer(outcome, fields)
fields = fields or {}
fields.outcome, fields.more = outcome, more
return flat(fields)
end
local function drop(token)
if shape then
forget({token})
return settle()
end
redis.call('DEL', K, L, H)
value = false
end
local function undo(token)
local granted = mine(token)
if granted and not pcall(drop, token) and not shape then redis.call('PEXPIRE', K, 1) end
redis.pcall('HDEL', OPEN, token or '')
redis.pcall('ZREM', ENDS, token or '')
return granted
end
local function undo_earlier()
local granted = false
for token in string.gmatch(ARG.earlier or '', '%S+') do granted = undo(token) or granted end
return granted
end
if shape then
local over = redis.call('ZRANGE', M, '-inf', digits(server_ms()), 'BYSCORE', 'LIMIT', 0, SWEPT)
unswept = #over == SWEPT
if #over > 0 then forget(over) end
last_deadline()
end
local RESERVED_MS = 1000 -- a free lock is kept so long for a waiter that was told, and is perhaps frozen
local BURIED = 500       -- no script drops more waiters that do not listen
local function fits(claim)
if not shape then return value == false end
return claim == shape and (shape == 'shared' or redis.call('ZCARD', P) < tonumber(string.sub(shape, 7)))
end
local function claim_of(waiter)
local initial = string.sub(waiter, 1, 1)
return initial == 's' and 'shared' or initial == 'p' and shape ~= 'shared' and shape or 'exclusive'
end
local function publish(channel, text)
local n = redis.pcall('PUBLISH', BASE .. channel, text)
if type(n) == 'number' then return n end
return 1
end
local buried = 0
local function bury(waiter)
redis.call('ZREM', Q, waiter)
buried = buried + 1
if buried == BURIED then more = 1 end
end
local function tell()
while not more do
local n = redis.call('ZRANGE', Q, 0, 0)[1]
if not n or publish('w:' .. n, 'head') > 0 then return end
bury(n)
end
end
local function call(me)
while not more do
local h = redis.call('ZRANGE', Q, 0, 0)[1]
if not h then return false end
if h ~= me and not fits(claim_of(h)) then
if publish('w:' .. h, 'head') > 0 then return nil end
bury(h)
else
redis.call('ZPOPMIN', Q)
tell()
if h == me then return me end
if publish('w:' .. h, 'go') > 0 then
redis.call('SET', R, h, 'PX', RESERVED_MS)
return h
end
bury(h)
end
end
end
local function hand_over()
pcall(function()
if redis.call('EXISTS', R) == 1 then return tell() end
call()
end)
end
local FENCE_MS = 8640000000  -- the fencing counter and the memory outlive their last use by 100 days
local astray -- a member was dropped that stood at another place than its own
if shape and unswept and ARG.place then
for _, member in ipairs(redis.call('ZRANGE', P, ARG.place, ARG.place, 'BYSCORE')) do
if not mine(member) then forget({member}) end
end
end
local function here(token)
if not mine(token) then return false end
if not shape or not ARG.place or redis.call('ZSCORE', P, token) == ARG.place then return true end
drop(token)
astray = true
return false
end
local function whose(token, hold)
if here(token) then return true, hold end
return hold and not shape and mine(token .. '.' .. hold), nil
end
local function node()
local info = redis.pcall('INFO', 'server')
if type(info) ~= 'string' then return {uptime = '', run = ''} end
local function field(name)
local _, last = string.find(info, name, 1, true) -- a plain search is the fastest
return string.match(info, '^[%w-]*', (last or #info) + 1)
end
return {uptime = field('uptime_in_seconds:'), run = field('run_id:')}
end
local function seen(outcome, fields)
local refused = redis.pcall('HDEL', L, '')
if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then error(refused.err) end
return answer(outcome, fields)
end
local function until_end(token)
if shape then return redis.call('ZSCORE', M, token) - server_ms() end
return redis.call('PTTL', K)
end
local function record_of(token)
return shape and BASE .. 'member:' .. token or L
end
local revoked_all -- that field, once it was read
local function revoked(by, since)
if by or not shape then return by end
revoked_all = revoked_all or redis.call('HGET', L, 'revoked') or ''
local at, by_all = string.match(revoked_all, '^(%d+) (.*)$')
since = tonumber(since) or 0
return at and (since <= tonumber(at) or since > server_us()) and by_all
end
local function holder(token)
local record, fields = redis.call('HGETALL', record_of(token)), {}
for i = 1, #record, 2 do fields[record[i]] = record[i + 1] end
if fields.token == token then fields.now = digits(server_us()) else fields = {} end
fields.revoked = fields.token and revoked(fields.revoked, fields.since)
fields.value, fields.left = string.sub(token, 1, tonumber(ARG.bytes) or -1), until_end(token)
if shape then fields.claim, fields.slot = shape, redis.call('ZSCORE', P, token) end
return flat(fields)
end
local function holders(most)
if value == false then return {holders = {}} end
if value == nil then return {holders = {{'type', redis.call('TYPE', K).ok, 'left', redis.call('PTTL', K)}}} end
if not shape then return {holders = {holder(value)}} end
local listed, known, last = {}, {}, most and most - 1 or -1
local tokens = redis.call('ZREVRANGE', M, 0, shape == 'shared' and last or 0)
if shape ~= 'shared' then -- by their places all nodes name the same
for _, token in ipairs(redis.call('ZRANGE', P, 0, last)) do tokens[#tokens + 1] = token end
end
for _, token in ipairs(tokens) do
if #listed ~= most and not known[token] and mine(token) then listed[#listed + 1] = holder(token) end
known[token] = true
end
local live = '(' .. digits(server_ms())
local soonest = redis.call('ZRANGE', M, live, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2] or server_ms()
local members = redis.pcall('ZCOUNT', M, live, '+inf') -- a user of an older rule may not
if type(members) ~= 'number' then members = redis.call('ZCARD', M) end
return {holders = listed, members = members, longest = redis.call('HGET', L, 'longest'), next = soonest - server_ms()}
end
local function is_vacant()
if not shape then return value == false end
if ARG.claim and shape ~= ARG.claim then return false end
return not ARG.place or #redis.call('ZRANGE', P, ARG.place, ARG.place, 'BYSCORE') == 0
end
local function not_mine()
if astray then hand_over() end
if is_vacant() then
return seen('gone', {node = flat(node()), longest = shape and redis.call('HGET', L, 'longest')})
end
return seen('other', holders(10))
end
local function counter(place)
return tonumber(place and redis.call('HGET', S, place) or not place and redis.call('GET', F)) or 0
end
local function set_counter(n, place)
if not place then return redis.call('SET', F, digits(n), 'PX', FENCE_MS) end
redis.call('HSET', S, place, digits(n), 'all', digits(math.max(n, counter('all'))))
redis.call('PEXPIRE', S, FENCE_MS)
end
local function lasts(token, ttl)
local ends = server_ms() + ttl
redis.call('ZADD', M, digits(ends), token)
redis.call('PEXPIREAT', record_of(token), digits(ends + 1000))
settle()
end
local function note_ttl(ttl)
redis.call('HSET', L, 'longest', digits(math.max(ttl, tonumber(redis.call('HGET', L, 'longest')) or 0)))
end
local function grant(fence, count, place)
if value == false then
shape = ARG.claim ~= 'exclusive' and ARG.claim or nil
value = shape and shape .. '.' .. string.sub(redis.sha1hex(ARG.token), 1, 16) or ARG.token
redis.call('SET', K, value, 'NX', 'PX', ARG.ttl)
redis.call('DEL', L, H, M, P) -- an older version's --force leaves members that are no more
end
if place then redis.call('ZADD', P, place, ARG.token) end
if shape then note_ttl(tonumber(ARG.ttl)) end
set_counter(count, place)
local record, since = record_of(ARG.token), server_us() - (tonumber(ARG.held) or 0) * 1000
redis.call('HSET', record, 'token', ARG.token, 'fence', digits(fence), 'ttl', ARG.ttl, 'since', digits(since),
'host', ARG.host, 'pid', ARG.pid, 'user', ARG.user, 'label', ARG.label)
if shape then lasts(ARG.token, ARG.ttl) else redis.call('PEXPIRE', L, ARG.ttl) end
end
local function lease(token)
local record = redis.call('HMGET', record_of(token), 'token', 'ttl', 'fence', 'revoked', 'since', 'kept')
if record[1] ~= (shape and token or value) then record = {} end
return {ttl = tonumber(record[2]), fence = record[3], revoked = revoked(record[4], record[5]), kept = record[6]}
end
local function note_deadline(token, ttl)
if redis.pcall('ZADD', ENDS, 'XX', 'CH', digits(server_ms() + ttl), token) ~= 1 then return end
if redis.call('PTTL', ENDS) < FENCE_MS - 86400000 then
for _, key in ipairs({OPEN, ENDS}) do redis.pcall('PEXPIRE', key, FENCE_MS) end
end
end
local function expire(token, ttl)
for _, key in ipairs({K, L, H}) do redis.call('PEXPIRE', key, ttl) end
note_deadline(token, ttl)
end
local function lengthen(token, ttl)
local left = until_end(token)
if left < 0 or left >= ttl then return left end
redis.call('PEXPIRE', F, FENCE_MS)
if shape then
redis.call('PEXPIRE', S, FENCE_MS)
note_ttl(ttl)
lasts(token, ttl)
note_deadline(token, ttl)
else
expire(token, ttl)
end
return ttl
end
local function lengthen_for(hold, lease)
if lease.kept then return until_end(ARG.token) end
local ttl = tonumber(ARG.ttl) or lease.ttl or tonumber(ARG.default)
local left = lengthen(ARG.token, ttl)
if not shape and lease.ttl and ttl > lease.ttl then
local known = tonumber(redis.call('HGET', L, 'to:' .. hold)) or 0
redis.pcall('HSET', L, 'to:' .. hold, digits(math.max(known, server_us() + ttl * 1000)))
end
return left
end
local function behind_all(set)
local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
return digits(math.max(server_us(), (tonumber(last) or 0) + 1))
end
local function add_hold(hold)
if redis.call('EXISTS', H) == 0 then
if hold == 'base' then return end
redis.call('ZADD', H, 0, 'base')
end
redis.call('ZADD', H, 'NX', hold == 'base' and 0 or behind_all(H), hold)
local left = redis.call('PTTL', K)
if left < 0 then redis.call('PERSIST', H) else redis.call('PEXPIRE', H, math.max(left, 1)) end
end
local function count_holds()
return math.max(redis.call('ZCARD', H), 1)
end
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'
local SEARCHED = 200 -- so many of the newest are looked through for a run that ended without a word
local CLOSED = 100   -- so many of those that have ended without a word are closed by one grant
local function short(text, most)
local count = 0
for at in string.gmatch(#text > most and text or '', '()[^\128-\191]') do
count = count + 1
if count > most then text = string.sub(text, 1, at - 1) break end
end
return text ~= '' and string.gsub(text, '%c', '?') or nil
end
local function new_run(fence, place, began)
return {t = ARG.token, h = short(ARG.host, 60), p = ARG.pid, u = short(ARG.user, 32), l = short(ARG.label, 40), b = digits(began),
w = ARG.waited ~= '0' and ARG.waited or nil, f = digits(fence), i = place and digits(place), q = ARG.once and '1',
n = ARG.log ~= '20' and ARG.log or nil}
end
local function line_of(run)
run.n = nil
return cjson.encode(run)
end
local function push(lines, most)
if redis.call('LPUSH', LOG, unpack(lines)) > most then
redis.call('LTRIM', LOG, 0, most - 1)
redis.call('HSET', RUNS, 'kept', most)
redis.call('PEXPIRE', RUNS, FENCE_MS)
end
redis.call('PEXPIRE', LOG, FENCE_MS)
end
local function is_newer(line, field)
local function time(run)
local began, duration = string.match(run, '"b":"(%d+)"'), field ~= 'once' and string.match(run, '"d":"(%d+)"')
return (began or 0) + (duration or 0)
end
local known = time(redis.call('HGET', RUNS, field) or '')
return known <= time(line) or known > server_ms()
end
local function count_end(run, line)
local success = run.x == '0' and not run.o
if not success and (run.o == 'released' or run.o == 'expired') then return end
local result = success and 'success' or 'failure'
if run.b + run.d >= server_ms() or is_newer(line, result) then redis.call('HSET', RUNS, result, line) end
if success and run.q and is_newer(line, 'once') then redis.call('HSET', RUNS, 'once', line) end
redis.call('HINCRBY', RUNS, success and 'succeeded' or 'failed', 1)
redis.call('PEXPIRE', RUNS, FENCE_MS)
end
local function find_logged(token)
for at, line in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
if string.find(line, '"t":"' .. token .. '"', 1, true) then return at - 1, cjson.decode(line) end
end
end
local function told_end(token)
local ok, known = pcall(function()
if redis.call('HEXISTS', OPEN, token) == 1 then return 'known' end
local _, run = find_logged(token)
local told = run and (not run.o and (run.x or run.s) or run.o == 'too-long' or run.o == 'released')
return run and (told and 'ended' or 'known')
end)
return ok and known or nil
end
local function take_open(tokens)
local lines, runs = redis.call('HMGET', OPEN, unpack(tokens)), {}
redis.call('HDEL', OPEN, unpack(tokens))
redis.call('ZREM', ENDS, unpack(tokens))
for i, line in ipairs(lines) do
local ok, run = pcall(cjson.decode, line)
runs[i] = ok and run
end
return runs
end
local function set_time(run, ended)
run.d = digits(math.max(ended - run.b, 0))
end
local function set_end(run, outcome, code, by, ended)
set_time(run, ended)
if outcome == 'exited' then run.x = code elseif outcome == 'signaled' then run.s = code else run.o = outcome end
run.y = by and short(by, 100) or nil
end
local function last_force()
local forced = redis.call('HGET', RUNS, 'forced')
return forced and cjson.decode(forced)
end
local function is_forced(run, forced, deadline)
local at = forced and tonumber(forced.b)
if not at or at > server_ms() or tonumber(run.b) > at or (deadline or at) < at then return false end
set_end(run, 'revoked', nil, forced.y, forced.b)
return true
end
local function end_of(run)
local ended = tonumber(ARG.ended) or 0
return ARG.began and run.b + math.max(ARG.began - ended, 0) or server_ms() - ended
end
local function note_end(token, outcome, code, by, late)
pcall(function()
local deadline = tonumber((late or ARG.gone) and redis.call('ZSCORE', ENDS, token) or nil)
local run, at = take_open({token})[1], nil
if outcome == 'unused' then return end
if not run and (late or ARG.gone) then
at, run = find_logged(token)
if run and (run.x or run.s or run.o) then run = nil end
end
if not run then return end
local most = tonumber(run.n) or 20
if late then
if not run.d then set_time(run, math.min(deadline or math.huge, server_ms())) end
run.o, run.x = 'expired', code
elseif not (ARG.gone and is_forced(run, last_force(), deadline)) then
set_end(run, outcome, code, by, end_of(run))
end
local line = line_of(run)
if at then redis.call('LSET', LOG, at, line) else push({line}, most) end
count_end(run, line)
end)
end
local function note_forgotten()
pcall(function()
if server_ms() == 0 or not ARG.log or (ARG.outcome or 'unused') == 'unused' then return end
local run = new_run(tonumber(ARG.fence), ARG.slot, server_ms() - ARG.began)
local most = tonumber(run.n) or 20
set_end(run, ARG.outcome, ARG.code, nil, end_of(run))
local line = line_of(run)
push({line}, most)
count_end(run, line)
end)
end
local function close_runs()
local now = digits(server_ms())
local over = shape and redis.call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'LIMIT', 0, CLOSED, 'WITHSCORES')
or redis.call('ZRANGE', ENDS, 0, CLOSED - 1, 'WITHSCORES')
local tokens, ends = {}, {}
for i = 1, #over, 2 do
if over[i] ~= ARG.token then
tokens[#tokens + 1], ends[#ends + 1] = over[i], math.min(over[i + 1], now)
end
end
if #tokens == 0 then return end
local closed, most, forced = {}, tonumber(ARG.log), last_force()
for i, run in ipairs(take_open(tokens)) do
if run then
set_time(run, ends[i])
local is_counted = is_forced(run, forced, ends[i])
most = most or tonumber(run.n) or 20
closed[#closed + 1] = line_of(run)
if is_counted then count_end(run, closed[#closed]) end
end
end
if #closed > 0 then push(closed, most) end
end
local function note_begin(fence, place)
pcall(function()
if server_ms() == 0 then return end
close_runs()
if not ARG.log then return end
redis.call('HSET', OPEN, ARG.token, cjson.encode(new_run(fence, place, server_ms() - (tonumber(ARG.held) or 0))))
redis.call('ZADD', ENDS, digits(server_ms() + ARG.ttl), ARG.token)
redis.call('PEXPIRE', OPEN, FENCE_MS)
redis.call('PEXPIRE', ENDS, FENCE_MS)
end)
end
local function recent_success()
local run = redis.call('HGET', RUNS, 'once')
local began = run and tonumber(string.match(run, '"b":"(%d+)"'))
return began and math.abs(server_ms() - began) < tonumber(ARG.once) and {success = run, clock = digits(server_ms())}
end
local ours, hold = whose(ARG.token, ARG.hold)
local keep = tonumber(ARG.keep)
local rest = ARG.note and math.max(ours and until_end(ARG.token) or redis.call('PTTL', R), 1)
local function leave_note()
if ARG.note then redis.pcall('SET', ARG.note, '', 'PX', rest) end
end
if not ours then
local known = told_end(ARG.token)
local is_by_token = not ARG.began -- not by the run itself, which says later what came of it
if ARG.gone then
note_end(ARG.token, ARG.gone, ARG.code)
elseif ARG.code and is_by_token then
note_end(ARG.token, nil, ARG.code, nil, true)
elseif not known and ARG.run and ARG.began then
local run = node().run
if run ~= '' and run ~= ARG.run then note_forgotten() end
end
local outer = not ARG.hold or ARG.hold == 'base'
if value ~= false and not shape or not outer or redis.call('GET', R) ~= ARG.token then
local reply = not_mine()
if known then reply[#reply + 1], reply[#reply + 2] = 'known', known end
return reply
end
if keep then
redis.call('PEXPIRE', R, keep)
else
redis.call('DEL', R)
leave_note()
hand_over()
end
return answer('released')
end
if redis.call('EXISTS', H) == 1 then
if not ARG.hold then return seen('newest', {hold = redis.call('ZREVRANGE', H, 0, 0)[1]}) end
if hold then redis.call('ZREM', H, hold) else hold = redis.call('ZPOPMAX', H)[1] end
elseif hold and hold ~= 'base' then
return seen('still-held', {holds = 1}) -- released before; the outer hold is all that is left
end
if not hold or hold == 'base' then
local by = (ARG.outcome == 'lost' or not ARG.began) and lease(ARG.token).revoked
note_end(ARG.token, by and 'revoked' or ARG.outcome or 'released', ARG.code, by)
end
local left = redis.call('ZCARD', H)
if left > 0 then
redis.call('HDEL', L, 'to:' .. hold)
local lasts, now, record = lease(value).ttl, server_us(), redis.call('HGETALL', L)
for i = 1, lasts and #record or 0, 2 do
if string.sub(record[i], 1, 3) == 'to:' then lasts = math.max(lasts, math.floor((record[i + 1] - now) / 1000)) end
end
if lasts and until_end(value) > lasts then expire(value, lasts) end
return answer('still-held', {holds = left})
end
if keep then
if lease(ARG.token).kept and until_end(ARG.token) <= keep then return answer('released') end
if shape then lasts(ARG.token, keep) else redis.call('PEXPIRE', K, keep) end
redis.pcall('HSET', record_of(ARG.token), 'kept', digits(server_us()))
if shape then redis.pcall('HSET', L, 'some_kept', 1) else redis.call('PEXPIRE', L, keep) end
else
drop(ARG.token)
leave_note()
hand_over()
end
return answer('released')

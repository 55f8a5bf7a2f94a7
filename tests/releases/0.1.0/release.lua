local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
local ARG, given = {}, ARGV
for i = 1, #given, 2 do ARG[given[i]] = given[i + 1] end
local BASE = string.sub(L, 1, -6) -- without 'lease': the names of the channels begin with it
local OPEN, ENDS = BASE .. 'open', BASE .. 'ends' -- see run.lua
local QUEUE_MS, FENCE_MS = '900000', '8640000000'
local value = redis.pcall('GET', K)
local shape
local us, revoked_all
local buried, more = 0, nil
if type(value) == 'table' then
if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
value = nil
elseif value and string.sub(value, 1, 1) == 's' then
local nonce = '%.' .. string.rep('%x', 16) .. '$'
shape = string.match(value, '^(shared)' .. nonce) or string.match(value, '^(slots:%d+)' .. nonce)
end
local function digits(n)
return string.format('%.0f', n)
end
local function server_us()
if not us then
local t = redis.pcall('TIME')
us = t.err and '0000' or t[1] .. string.rep('0', 6 - #t[2]) .. t[2]
end
return us
end
local function server_ms()
return math.floor(server_us() / 1000)
end
local function is_held_by(token)
if not token or token == '' then return false end
if not shape then return value == token end
return (tonumber(redis.call('ZSCORE', M, token)) or 0) > server_ms()
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
return (function()
local SWEPT = 100 -- no script forgets more members that have run out
local members = {}
if shape or ARG.claim and ARG.claim ~= 'exclusive' then
function members.delete_mark()
local done = redis.call('ZCARD', M) > 1000 and redis.pcall('UNLINK', K, L, M, P)
if type(done) ~= 'number' then redis.call('DEL', K, L, M, P) end
value, shape = false, nil
end
function members.last_deadline()
local last = redis.call('ZRANGE', M, -1, -1, 'WITHSCORES')[2]
if last and tonumber(last) > server_ms() then return last end
members.delete_mark()
end
function members.expire_all()
local last = members.last_deadline()
if not last then return end
for _, key in ipairs({K, L, M, P}) do redis.call('PEXPIREAT', key, last) end
if redis.call('EXISTS', K) == 0 then value, shape = false, nil end
end
function members.expire(token, ttl)
local ends = server_ms() + ttl
redis.call('ZADD', M, digits(ends), token)
redis.call('PEXPIREAT', BASE .. 'member:' .. token, digits(ends + 1000))
members.expire_all()
end
function members.set_longest(ttl)
redis.call('HSET', L, 'longest', digits(math.max(ttl, tonumber(redis.call('HGET', L, 'longest')) or 0)))
end
function members.forget(tokens)
local records = {}
for i, token in ipairs(tokens) do records[i] = BASE .. 'member:' .. token end
redis.call('ZREM', M, unpack(tokens))
redis.call('ZREM', P, unpack(tokens))
redis.call('DEL', unpack(records))
end
end
if shape then
local over = redis.call('ZRANGE', M, '-inf', digits(server_ms()), 'BYSCORE', 'LIMIT', 0, SWEPT)
if #over > 0 then members.forget(over) end
members.last_deadline()
if shape and #over == SWEPT and ARG.place then
for _, token in ipairs(redis.call('ZRANGE', P, ARG.place, ARG.place, 'BYSCORE')) do
if not is_held_by(token) then members.forget({token}) end
end
end
end
local function drop(token)
if shape then
members.forget({token})
return members.expire_all()
end
redis.call('DEL', K, L, H)
value = false
end
local function undo(token)
local granted = is_held_by(token)
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
local RESERVED_MS = 1000 -- a free lock is kept so long for a waiter that was told, and is perhaps frozen
local BURIED = 500       -- no script drops more waiters that do not listen
local function fits(claim)
if not shape then return value == false end
return claim == shape and (shape == 'shared' or redis.call('ZCARD', P) < tonumber(string.sub(shape, 7)))
end
local function call_next(me)
local function claim_of(waiter)
local initial = string.sub(waiter, 1, 1)
return initial == 's' and 'shared' or initial == 'p' and shape ~= 'shared' and shape or 'exclusive'
end
local function tell(waiter, text)
local listeners = redis.pcall('PUBLISH', BASE .. 'w:' .. waiter, text)
if listeners ~= 0 then return true end
redis.call('ZREM', Q, waiter)
buried = buried + 1
if buried == BURIED then more = 1 end
end
local function tell_first()
local waiter
repeat waiter = not more and redis.call('ZRANGE', Q, 0, 0)[1] until not waiter or tell(waiter, 'head')
end
if redis.call('EXISTS', R) == 1 then return tell_first() end
while not more do
local first = redis.call('ZRANGE', Q, 0, 0)[1]
if not first then return false end
if first ~= me and not fits(claim_of(first)) then
if tell(first, 'head') then return nil end
else
redis.call('ZPOPMIN', Q)
tell_first()
if first == me then return me end
if tell(first, 'go') then
redis.call('SET', R, first, 'PX', RESERVED_MS)
return first
end
end
end
end
local function hand_over()
if redis.pcall('EXISTS', Q) ~= 0 then pcall(call_next) end
end
local function node()
local info = redis.pcall('INFO', 'server')
if type(info) ~= 'string' then return {uptime = '', run_id = ''} end
local function field(name)
local _, last = string.find(info, name, 1, true) -- a plain search is the fastest
return string.match(info, '^[%w-]*', (last or #info) + 1)
end
return {uptime = field('uptime_in_seconds:'), run_id = field('run_id:')}
end
local function answer_from_reads(outcome, fields)
local refused = redis.pcall('HDEL', L, '')
if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then error(refused.err) end
return answer(outcome, fields)
end
local function record_of(token)
return shape and BASE .. 'member:' .. token or L
end
local function find_hold(token, hold)
if is_held_by(token) then return true, hold end
return hold and not shape and is_held_by(token .. '.' .. hold), nil
end
local function until_end(token)
if shape then return redis.call('ZSCORE', M, token) - server_ms() end
return redis.call('PTTL', K)
end
local function revoked_by(by, since)
if by or not shape then return by end
revoked_all = revoked_all or redis.call('HGET', L, 'revoked') or ''
local at, by_all = string.match(revoked_all, '^(%d+) (.*)$')
since = tonumber(since) or 0
return at and (since <= tonumber(at) or since > tonumber(server_us())) and by_all
end
local function read_record(token)
local record = redis.call('HMGET', record_of(token), 'token', 'ttl', 'fence', 'revoked', 'since', 'kept')
if record[1] ~= (shape and token or value) then record = {} end
return {ttl = tonumber(record[2]), fence = record[3], revoked = revoked_by(record[4], record[5]), kept = record[6]}
end
local function count_holds()
return math.max(redis.call('ZCARD', H), 1)
end
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'
local function new_run(began, fence, place)
local slot = place and ',"i":"' .. digits(place) .. '"' or ''
return '{"t":"' .. ARG.token .. '","b":"' .. began .. '","f":"' .. fence .. '"' .. slot .. ',' .. string.sub(ARG.entry, 2)
end
local function write_begin(fence, place)
local began = ARG.held and digits(server_ms() - ARG.held) or string.sub(server_us(), 1, -4)
redis.call('HSET', OPEN, ARG.token, new_run(began, fence, place))
redis.call('ZADD', ENDS, digits(server_ms() + ARG.ttl), ARG.token)
redis.call('PEXPIRE', OPEN, FENCE_MS)
redis.call('PEXPIRE', ENDS, FENCE_MS)
end
local function remember_begin(fence, place)
if ARG.entry and server_ms() ~= 0 then pcall(write_begin, fence, place) end
end
local SEARCHED = 200        -- so many of the newest are looked through for a run that ended without a word
local LOG_MS = '8726400000' -- 101 days, renewed when less than 100 are left: users may ask for runs of 100 days
local function number_of(run, name)
local _, last = string.find(run, '"' .. name .. '":"', 1, true)
return last and tonumber(string.match(run, '^%d+', last + 1))
end
local function began_at(run)
return number_of(run, 'b') or 0
end
local function ended_at(run)
return began_at(run) + (number_of(run, 'd') or 0)
end
local function with_end(run, ended, outcome)
local behind = string.find(run, ',"d":"', 1, true) or #run
return string.sub(run, 1, behind - 1) .. ',"d":"' .. digits(math.max(ended - began_at(run), 0)) .. '"' .. outcome .. '}'
end
local function short(text, most)
if #text > most then
local count = 0
for at in string.gmatch(text, '()[^\128-\191]') do
count = count + 1
if count > most then text = string.sub(text, 1, at - 1) break end
end
end
text = string.gsub(text, '%c', '?')
return text ~= '' and text or nil
end
local function outcome_of(word, code, by)
by = by and short(by, 100)
local letter = word == 'exited' and 'x' or word == 'signaled' and 's'
return ',"' .. (letter or 'o') .. '":"' .. (letter and code or word) .. '"' .. (by and ',"y":' .. cjson.encode(by) or '')
end
local function has_ended(run, outcome)
return string.find(run, outcome, 1, true) ~= nil
end
local function result_of(run)
if has_ended(run, ',"o":"released"') or has_ended(run, ',"o":"expired"') then return nil end
return has_ended(run, ',"x":"0"') and 'success' or 'failure'
end
local function push(runs, first, most, at)
local newest = first and redis.call('LINDEX', LOG, '0')
local are_last = not at and #runs == 1 and not (newest and ended_at(newest) > first)
if not are_last then -- takes out the runs that ended later, and all as far as `at`, and puts them back sorted
local taken, ends = 0, {}
for i, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
if i - 1 > (at or -1) and ended_at(run) <= first then break end
if i - 1 ~= at then runs[#runs + 1] = run end
taken = i
end
redis.call('LTRIM', LOG, taken, -1)
for _, run in ipairs(runs) do ends[run] = ended_at(run) end
table.sort(runs, function(one, other) return ends[one] < ends[other] end)
end
if redis.call('LPUSH', LOG, unpack(runs)) > most then
redis.call('LTRIM', LOG, '0', digits(most - 1))
if redis.call('HSETNX', RUNS, 'cut', '1') == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
end
if redis.call('PTTL', LOG) < tonumber(FENCE_MS) then
for _, key in ipairs({LOG, RUNS}) do redis.call('PEXPIRE', key, LOG_MS) end
end
return are_last
end
local function is_newer(run, field)
local time = field == 'once' and began_at or ended_at
local known = time(redis.call('HGET', RUNS, field) or '')
return known <= time(run) or known > server_ms()
end
local function keep_last(run, result, is_last)
if is_last or is_newer(run, result) then redis.call('HSET', RUNS, result, run) end
if result == 'success' and string.find(run, '"q":', 1, true) and is_newer(run, 'once') then redis.call('HSET', RUNS, 'once', run) end
end
local function count_end(run, is_last)
local result = result_of(run)
if not result then return end
keep_last(run, result, is_last)
local count = redis.call('HINCRBY', RUNS, result == 'success' and 'succeeded' or 'failed', '1')
if count == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
end
local function most_of(run)
return number_of(run, 'n') or 20
end
local function log_end(run, ended, outcome, at, is_last)
local most = at and math.huge or most_of(run)
run = with_end(run, ended, outcome)
count_end(run, push({run}, not is_last and ended or nil, most, at))
end
local function take_open(token)
local run = redis.call('HGET', OPEN, token)
redis.call('HDEL', OPEN, token)
redis.call('ZREM', ENDS, token)
return run
end
local function end_of(run)
local ended = tonumber(ARG.ended) or 0
return ARG.began and began_at(run) + math.max(ARG.began - ended, 0) or server_ms() - ended
end
local function write_end(token, word, code, by)
local run = take_open(token)
if not run or word == 'unused' then return end
log_end(run, end_of(run), outcome_of(word, code, by), nil, not shape)
end
local function remember_end(...)
pcall(write_end, ...)
end
local is_held, hold = find_hold(ARG.token, ARG.hold)
local keep = tonumber(ARG.keep)
local rest = ARG.note and math.max(is_held and until_end(ARG.token) or redis.call('PTTL', R), 1)
local function leave_note()
if ARG.note then redis.pcall('SET', ARG.note, '', 'PX', rest) end
end
local function release_hold(note)
local left = redis.call('ZCARD', H)
if left > 0 then
if not ARG.hold then return answer_from_reads('newest', {hold = redis.call('ZREVRANGE', H, 0, 0)[1]}) end
if hold then redis.call('ZREM', H, hold) else hold = redis.call('ZPOPMAX', H)[1] end
left = redis.call('ZCARD', H)
elseif hold and hold ~= 'base' then
return answer_from_reads('still-held', {holds = 1}) -- released before; the outer hold is all that is left
end
if not hold or hold == 'base' then
local is_unsure = ARG.outcome == 'lost' or not ARG.began
local by = is_unsure and revoked_by(unpack(redis.call('HMGET', record_of(ARG.token), 'revoked', 'since')))
note(ARG.token, by and 'revoked' or ARG.gone or ARG.outcome or 'released', ARG.code, by)
end
if left > 0 then return answer('still-held', {holds = left}) end
if keep then
if read_record(ARG.token).kept and until_end(ARG.token) <= keep then return answer('released') end
if shape then members.expire(ARG.token, keep) else redis.call('PEXPIRE', K, keep) end
redis.pcall('HSET', record_of(ARG.token), 'kept', server_us())
if shape then redis.pcall('HSET', L, 'some_kept', 1) else redis.call('PEXPIRE', L, keep) end
else
drop(ARG.token)
leave_note()
hand_over()
end
return answer('released')
end
if is_held and not ARG.gone then return release_hold(remember_end) end
local function holder(token)
local record, fields = redis.call('HGETALL', record_of(token)), {}
for i = 1, #record, 2 do fields[record[i]] = record[i + 1] end
if fields.token == token then fields.now = server_us() else fields = {} end
fields.revoked = fields.token and revoked_by(fields.revoked, fields.since)
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
if #listed ~= most and not known[token] and is_held_by(token) then listed[#listed + 1] = holder(token) end
known[token] = true
end
local live = '(' .. digits(server_ms())
local soonest = redis.call('ZRANGE', M, live, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2] or server_ms()
local count = redis.pcall('ZCOUNT', M, live, '+inf')
if type(count) ~= 'number' then count = redis.call('ZCARD', M) end
return {holders = listed, members = count, longest = redis.call('HGET', L, 'longest'), next = soonest - server_ms()}
end
local function is_vacant()
if not shape then return value == false end
if ARG.claim and shape ~= ARG.claim then return false end
return not ARG.place or #redis.call('ZRANGE', P, ARG.place, ARG.place, 'BYSCORE') == 0
end
local function answer_without_lease()
if is_vacant() then
return answer_from_reads('gone', {node = flat(node()), longest = shape and redis.call('HGET', L, 'longest')})
end
return answer_from_reads('other', holders(10))
end
local CLOSED = 100 -- so many of them are closed by one grant
local function last_force()
local forced = redis.call('HGET', RUNS, 'forced')
return forced and cjson.decode(forced)
end
local function end_by(forced, run, deadline)
local at = forced and tonumber(forced.b)
if not at or at > server_ms() or began_at(run) > at or (deadline or at) < at then return nil end
return at, outcome_of('revoked', nil, forced.y)
end
local function close_runs()
pcall(function()
if server_ms() == 0 then return end
local now = digits(server_ms())
local over = shape and redis.call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'LIMIT', 0, CLOSED, 'WITHSCORES')
or redis.call('ZRANGE', ENDS, 0, CLOSED - 1, 'WITHSCORES')
if #over == 0 or #over == 2 and over[1] == ARG.token then return end
local closed, first, most, forced = {}, math.huge, ARG.entry and most_of(ARG.entry), last_force()
for i = 1, #over, 2 do
local run = over[i] ~= ARG.token and take_open(over[i])
if run then
local ended = math.min(over[i + 1], now)
local at, outcome = end_by(forced, run, ended)
run, most = with_end(run, at or ended, outcome or ''), most or most_of(run)
first = math.min(first, at or ended)
closed[#closed + 1] = run
if outcome then count_end(run) end
end
end
if #closed > 0 then push(closed, first, most) end
end)
end
local AGAIN_MS = 5000 -- a release is sent again for so long
local function has_outcome(run)
return has_ended(run, ',"x":"') or has_ended(run, ',"s":"') or has_ended(run, ',"o":"')
end
local function is_told(run)
if not has_ended(run, ',"o":"') then return has_outcome(run) end
return has_ended(run, ',"o":"too-long"') or has_ended(run, ',"o":"released"')
end
local function discount(told)
local result = result_of(told)
if result then redis.call('HINCRBY', RUNS, result == 'success' and 'succeeded' or 'failed', '-1') end
local fields = {}
for i, run in ipairs(redis.call('HMGET', RUNS, 'success', 'failure', 'once')) do
if run == told then fields[#fields + 1] = ({'success', 'failure', 'once'})[i] end
end
if #fields == 0 then return end
redis.call('HDEL', RUNS, unpack(fields))
for _, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
local other = run ~= told and has_outcome(run) and result_of(run)
if other then keep_last(run, other) end
end
end
local function find_logged(token)
for at, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
if string.find(run, '"t":"' .. token .. '"', 1, true) then return at - 1, run end
end
end
local function is_cut_behind()
local oldest = redis.call('LINDEX', LOG, SEARCHED - 1)
if not oldest and redis.call('HEXISTS', RUNS, 'cut') == 1 then oldest = redis.call('LINDEX', LOG, -1) end
return oldest and ended_at(oldest) > server_ms() - (tonumber(ARG.ended) or 0) - AGAIN_MS
end
local function told_end(token)
local ok, known = pcall(function()
if redis.call('HEXISTS', OPEN, token) == 1 then return 'known' end
local _, run = find_logged(token)
if run then return is_told(run) and 'ended' or 'known' end
return is_cut_behind() and 'unsure' or nil
end)
return ok and known or not ok and 'unsure' or nil
end
local function correct_end(token, word, code, by, late)
pcall(function()
local deadline = tonumber((late or ARG.gone) and redis.call('ZSCORE', ENDS, token) or nil)
local run, at = take_open(token), nil
if word == 'unused' then return end
if not run and (late or ARG.gone) then
at, run = find_logged(token)
if run and ARG.told and is_told(run) then
discount(run)
elseif run and has_outcome(run) then
run = nil
end
end
if not run then return end
local ended, outcome
if late then
ended = at and ended_at(run) or math.min(deadline or math.huge, server_ms())
outcome = outcome_of('expired') .. outcome_of('exited', code)
elseif ARG.gone then
ended, outcome = end_by(last_force(), run, deadline)
end
log_end(run, ended or end_of(run), outcome or outcome_of(word, code, by), at)
end)
end
local function remember_forgotten()
local word = ARG.gone or ARG.outcome or 'unused'
pcall(function()
if server_ms() == 0 or not ARG.entry or word == 'unused' then return end
local run = new_run(digits(server_ms() - ARG.began), ARG.fence, ARG.slot)
log_end(run, end_of(run), outcome_of(word, ARG.code))
end)
end
if is_held then return release_hold(correct_end) end
local known = told_end(ARG.token)
local is_by_token = not ARG.began -- not by the run itself, which says later what came of it
local run_id = not known and ARG.run_id and (ARG.gone or is_vacant()) and node().run_id
if run_id and run_id ~= '' and run_id ~= ARG.run_id then
remember_forgotten()
elseif ARG.gone then
correct_end(ARG.token, ARG.gone, ARG.code)
elseif ARG.code and is_by_token then
correct_end(ARG.token, nil, ARG.code, nil, true)
end
local outer = not ARG.hold or ARG.hold == 'base'
if value ~= false and not shape or not outer or redis.call('GET', R) ~= ARG.token then
local reply = answer_without_lease()
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
end)()

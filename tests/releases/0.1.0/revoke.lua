local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
local ARG, given = {token = nil, ttl = nil, now = nil, host = nil, pid = nil, user = nil, label = nil, entry = nil,
claim = nil}, ARGV
for i = 1, #given, 2 do ARG[given[i]] = given[i + 1] end
local BASE = string.sub(L, 1, -#'lease' - 1)
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'
local QUEUE_MS, FENCE_MS, LOG_MS = '900000', '8640000000', '8726400000'
local time = redis.call('TIME')
local us = time[1] .. string.sub('00000' .. time[2], -6)
local ms = string.sub(us, 1, -4)
local value = redis.pcall('GET', K)
local claim, revoked_all
local now = tonumber(ms)
local UNPACKED = 1000
if type(value) == 'table' then
if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
value = nil
elseif value and string.sub(value, 1, 1) == 's' then
local nonce = '%.' .. string.rep('%x', 16) .. '$'
claim = string.match(value, '^(shared)' .. nonce) or string.match(value, '^(slots:%d+)' .. nonce)
end
local function digits(n)
return string.format('%.0f', n)
end
local function is_held_by(token)
if not token or token == '' then return false end
if not claim then return value == token end
return redis.call('ZSCORE', M, token) ~= false
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
fields.outcome = outcome
return flat(fields)
end
local members = {}
if claim or ARG.claim and ARG.claim ~= 'exclusive' then
function members.expire_all()
local last = redis.call('ZRANGE', M, -1, -1, 'WITHSCORES')[2]
if last then
for _, key in ipairs({K, L, M, P}) do redis.call('PEXPIREAT', key, last) end
else
redis.call('DEL', K, L, M, P)
end
if not last or redis.call('EXISTS', K) == 0 then value, claim = false, nil end
end
function members.expire(token, ttl)
redis.call('PEXPIREAT', BASE .. 'member:' .. token, digits(now + ttl + 1000))
redis.call('ZADD', M, digits(now + ttl), token)
redis.call('HSET', L, 'longest', digits(math.max(ttl, tonumber(redis.call('HGET', L, 'longest')) or 0)))
members.expire_all()
end
function members.forget(tokens)
for first = 1, #tokens, UNPACKED do
local last, records = math.min(first + UNPACKED - 1, #tokens), {}
for i = first, last do records[#records + 1] = BASE .. 'member:' .. tokens[i] end
redis.call('ZREM', M, unpack(tokens, first, last))
redis.call('ZREM', P, unpack(tokens, first, last))
redis.call('DEL', unpack(records))
end
end
end
if claim then
members.forget(redis.call('ZRANGE', M, '-inf', ms, 'BYSCORE'))
if redis.call('EXISTS', M) == 0 then members.expire_all() end
end
local LOGGED = 220
local function is_of(text, token)
return text and string.find(text, '"t":"' .. token .. '"', 1, true)
end
local function find_run(token)
local first = redis.call('LINDEX', LOG, 0) -- usually this run
if is_of(first, token) then return 0, first end
for i, text in ipairs(redis.call('LRANGE', LOG, 0, LOGGED)) do
if is_of(text, token) then return i - 1, text end
end
end
local function forget_run(token)
if ARG.tries then redis.pcall('ZREM', BASE .. 'tries', token) end
local _, text = find_run(token)
if text then redis.call('LREM', LOG, 1, text) end
end
local RESERVED_MS = 1000
local function drop(token)
if claim then
members.forget({token})
return members.expire_all()
end
redis.call('DEL', K, L, H)
value = false
end
local function undo(token)
local granted = is_held_by(token)
if granted and not pcall(drop, token) and not claim then redis.call('PEXPIRE', K, 1) end
if token then pcall(forget_run, token) end
return granted
end
local function undo_earlier()
local granted = false
for token in string.gmatch(ARG.earlier or '', '%S+') do granted = undo(token) or granted end
return granted
end
local function fits(asked)
if not claim then return value == false end
return asked == claim and (claim == 'shared' or redis.call('ZCARD', P) < tonumber(string.sub(claim, 7)))
end
local function call_next(me)
local function claim_of(waiter)
local initial = string.sub(waiter, 1, 1)
return initial == 's' and 'shared' or initial == 'p' and claim ~= 'shared' and claim or 'exclusive'
end
local function tell(waiter, text)
if redis.pcall('PUBLISH', BASE .. 'w:' .. waiter, text) ~= 0 then return true end
redis.call('ZREM', Q, waiter)
end
local function tell_first()
local waiter
repeat waiter = redis.call('ZRANGE', Q, 0, 0)[1] until not waiter or tell(waiter, 'head')
end
if redis.call('EXISTS', R) == 1 then return tell_first() end
while true do
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
local info, uptime, run_id = redis.pcall('INFO', 'server'), '', ''
if type(info) == 'string' then
local _, last = string.find(info, 'uptime_in_seconds:', 1, true) -- a plain search is the fastest
uptime = string.match(info, '^[%w-]*', last + 1)
_, last = string.find(info, 'run_id:', 1, true)
run_id = string.sub(info, last + 1, string.find(info, '\r', last, true) - 1)
end
return uptime .. ' ' .. run_id, tonumber(uptime), run_id
end
local function record_of(token)
return claim and BASE .. 'member:' .. token or L
end
local function find_hold(token, hold)
if is_held_by(token) then return true, hold end
return hold and not claim and is_held_by(token .. '.' .. hold), nil
end
local function until_end(token)
if claim then return redis.call('ZSCORE', M, token) - now end
return redis.call('PTTL', K)
end
local function revoked_by(by, since)
if by or not claim then return by end
revoked_all = revoked_all or redis.call('HGET', L, 'revoked') or ''
local at, by_all = string.match(revoked_all, '^(%d+) (.*)$')
since = tonumber(since) or 0
return at and (since <= tonumber(at) or since > tonumber(us)) and by_all
end
local function read_record(token)
local record = redis.call('HMGET', record_of(token), 'token', 'ttl', 'fence', 'revoked', 'since')
if record[1] ~= (claim and token or value) then record = {} end
return {ttl = tonumber(record[2]), fence = record[3], revoked = revoked_by(record[4], record[5])}
end
local function count_holds()
return math.max(redis.call('ZCARD', H), 1)
end
local function answer_from_reads(outcome, fields)
local refused = redis.pcall('HDEL', L, '')
if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then error(refused.err) end
return answer(outcome, fields)
end
local function holder(token)
local record, fields = redis.call('HGETALL', record_of(token)), {}
for i = 1, #record, 2 do fields[record[i]] = record[i + 1] end
if fields.token == token then fields.now = us else fields = {} end
fields.revoked = fields.token and revoked_by(fields.revoked, fields.since)
fields.value, fields.left = string.sub(token, 1, tonumber(ARG.bytes) or -1), until_end(token)
if claim then fields.claim, fields.slot = claim, redis.call('ZSCORE', P, token) end
return flat(fields)
end
local function holders(most)
if value == false then return {holders = {}} end
if value == nil then return {holders = {{'type', redis.call('TYPE', K).ok, 'left', redis.call('PTTL', K)}}} end
if not claim then return {holders = {holder(value)}} end
local listed, known, last = {}, {}, most and most - 1 or -1
local tokens = redis.call('ZREVRANGE', M, 0, claim == 'shared' and last or 0)
if claim ~= 'shared' then -- by slot, so that all nodes name the same holders
for _, token in ipairs(redis.call('ZRANGE', P, 0, last)) do tokens[#tokens + 1] = token end
end
for _, token in ipairs(tokens) do
if #listed ~= most and not known[token] then listed[#listed + 1] = holder(token) end
known[token] = true
end
local soonest = redis.call('ZRANGE', M, 0, 0, 'WITHSCORES')[2]
local count, longest = redis.call('ZCARD', M), redis.call('HGET', L, 'longest')
return {holders = listed, members = count, longest = longest, next = soonest - now}
end
local function is_vacant()
if not claim then return value == false end
if ARG.claim and claim ~= ARG.claim then return false end
return not ARG.slot or #redis.call('ZRANGE', P, ARG.slot, ARG.slot, 'BYSCORE') == 0
end
local function answer_without_lease()
if is_vacant() then
return answer_from_reads('gone', {node = node(), longest = claim and redis.call('HGET', L, 'longest')})
end
return answer_from_reads('other', holders(10))
end
local function lengthen(token, ttl)
local left = until_end(token)
if left < 0 or left >= ttl then return left end
if claim then
members.expire(token, ttl)
else
for _, key in ipairs({K, L, H}) do redis.call('PEXPIRE', key, ttl) end
end
return ttl
end
local function extend_lease(record)
return lengthen(ARG.token, tonumber(ARG.ttl) or record.ttl or tonumber(ARG.default))
end
local function behind_all(set)
local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
return digits(math.max(us, (tonumber(last) or 0) + 1))
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
local function counter(slot)
local count = slot and redis.call('HGET', S, slot) or not slot and redis.call('GET', F) or '0'
if string.find(count, '^%d+$') and tonumber(count) < 2 ^ 53 then return tonumber(count) end
error('NOCOUNTER ' .. (slot and S or F) .. ' is no fencing counter', 0)
end
local function set_counter(n, slot)
if not slot then return redis.call('SET', F, n, 'PX', FENCE_MS) end
redis.call('HSET', S, slot, n, 'all', digits(math.max(n, counter('all'))))
redis.call('PEXPIRE', S, FENCE_MS)
end
local function list_member(count, slot)
if slot then redis.call('ZADD', P, slot, ARG.token) end
set_counter(count, slot)
members.expire(ARG.token, tonumber(ARG.ttl))
end
local notes = {} -- fields of the answer: unnoted (why `once` could not be written), unwritten (why the rest could not)
local function succeeded(run)
return run.x == '0' and not run.o
end
local function note(name, write, ...)
local done, why = pcall(write, ...)
if not done then notes[name] = type(why) == 'table' and why.err or why end
end
local function note_once(text, fence)
local known = redis.call('HGET', RUNS, 'once')
if known and tonumber(cjson.decode(known).f) > tonumber(fence) then return end
redis.call('HSET', RUNS, 'once', text)
redis.call('PEXPIRE', RUNS, LOG_MS)
end
local function end_run(token, ending, at, text)
if not at then at, text = find_run(token) end
if ending.o == 'lost' then
for _, field in ipairs({'success', 'once'}) do
if is_of(redis.call('HGET', RUNS, field), token) then redis.call('HDEL', RUNS, field) end
end
end
local run, errors = ending, ending.e
ending.e = nil
local is_usual = at and ending.b and not (ending.o or errors) and not string.find(text, '"[do]":"')
and string.find(text, '"b":"' .. ending.b .. '"', 1, true)
if at and not is_usual then
run = cjson.decode(text)
if run.x or run.s or run.o then
if ending.o ~= 'lost' or not succeeded(run) then
local failure = errors and redis.call('HGET', RUNS, 'failure')
if not is_of(failure, token) then return end
failure = cjson.decode(failure)
failure.e = failure.e or errors
return redis.call('HSET', RUNS, 'failure', cjson.encode(failure))
end
redis.call('HINCRBY', RUNS, 'succeeded', -1)
run.x = nil
end
for name, value in pairs(ending) do run[name] = run[name] or value end
end
if not run.b then return end -- a release by token cannot tell a run that the log has lost
if run.o ~= 'expired' then run.d = run.d or string.format('%.0f', math.max(ms - run.b, 0)) end
text = is_usual and ARG.run or cjson.encode(run)
if run.q and succeeded(run) then note('unnoted', note_once, text, run.f) end
if at then
redis.call('LSET', LOG, at, text)
else
redis.call('LPUSH', LOG, text)
redis.call('PEXPIRE', LOG, LOG_MS)
end
redis.call('LTRIM', LOG, 0, (run.n or 20) - 1)
if run.o == 'released' or run.o == 'expired' then return end
local result, count = 'success', 'succeeded'
if not succeeded(run) then result, count = 'failure', 'failed' end
local known = at ~= 0 and redis.call('HGET', RUNS, result)
known = known and cjson.decode(known)
known = known and known.b + known.d
if not known or known <= run.b + run.d or known > tonumber(ms) then
if errors and result == 'failure' then
run.e = errors
text = cjson.encode(run)
end
redis.call('HSET', RUNS, result, text)
end
if redis.call('HINCRBY', RUNS, count, 1) == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
end
local function end_one(token)
local record, slot = record_of(token), claim and redis.call('ZSCORE', P, token)
if not ARG.force then
redis.call('HSETNX', record, 'revoked', ARG.by)
return 'revoked'
end
local count = counter(slot) -- first: this may fail
drop(token)
set_counter(digits(count + 1), slot)
pcall(end_run, token, {o = 'revoked', y = ARG.by})
return 'released'
end
local function force_all()
local tokens, is_member = redis.call('ZRANGE', M, 0, -1), {}
for _, token in ipairs(tokens) do is_member[token] = true end
local count = math.max(counter(), counter('all')) + 1
members.forget(tokens)
members.expire_all()
set_counter(digits(count))
pcall(function()
for i, text in ipairs(redis.call('LRANGE', LOG, 0, LOGGED - 1)) do
local is_read, run = pcall(cjson.decode, text)
if is_read and is_member[run.t] then pcall(end_run, run.t, {o = 'revoked', y = ARG.by}, i - 1, text) end
end
end)
return 'released'
end
local function revoke_all()
redis.call('HSET', L, 'revoked', us .. ' ' .. ARG.by)
return 'revoked'
end
if value == false then return answer_without_lease() end
if value == nil then return answer_from_reads('foreign', holders(10)) end
local is_other = ARG.token and ARG.token ~= value and not is_held_by(ARG.token)
if is_other then return answer_from_reads('other', holders(10)) end
local token, ended = ARG.token or not claim and value, nil
if token and not ARG.force and not read_record(token).ttl then return answer_from_reads('foreign', holders(10)) end
ended = token and {holders = {holder(token)}} or holders(10)
local outcome
if token then outcome = end_one(token) elseif ARG.force then outcome = force_all() else outcome = revoke_all() end
if claim or value == false then hand_over() end
return answer(outcome, ended)

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
local granted = undo(ARG.token)
if not ARG.stay then
undo_earlier()
if ARG.waiter then
redis.call('ZREM', Q, ARG.waiter)
if redis.call('GET', R) == ARG.waiter then redis.call('DEL', R) end
end
hand_over()
elseif granted and ARG.waiter and ARG.ticket then
redis.call('ZADD', Q, 'NX', ARG.ticket, ARG.waiter)
redis.call('PEXPIRE', Q, QUEUE_MS)
end
return answer('done')

local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
local ARG, given = {token = nil, ttl = nil, now = nil, host = nil, pid = nil, user = nil, label = nil, entry = nil,
claim = nil}, ARGV
for i = 1, #given, 2 do ARG[given[i]] = given[i + 1] end
local BASE = string.sub(L, 1, -6) -- without 'lease': all other names begin with BASE
local OPEN, ENDS, LOG, RUNS = BASE .. 'open', BASE .. 'ends', BASE .. 'log', BASE .. 'runs'
local QUEUE_MS, FENCE_MS, LOG_MS = '900000', '8640000000', '8726400000'
local time = redis.call('TIME')
local us = time[1] .. string.sub('00000' .. time[2], -6)
local ms = string.sub(us, 1, -4)
local value = redis.pcall('GET', K)
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
local claim, revoked_all
local now = tonumber(ms)
local UNPACKED = 1000 -- the most arguments for one command: Lua's stack ends at some 8,000
if type(value) == 'table' then
if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
value = nil -- a key of another type
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
function members.expire(token, ttl, is_kept)
redis.call('PEXPIREAT', BASE .. 'member:' .. token, digits(now + ttl + 1000))
redis.call('ZADD', M, digits(now + ttl), token)
if not is_kept then
redis.call('HSET', L, 'longest', digits(math.max(ttl, tonumber(redis.call('HGET', L, 'longest')) or 0)))
end
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
local RESERVED_MS = 1000 -- how long a free lock is kept for a waiter that was called, and may be frozen
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
redis.pcall('HDEL', OPEN, token or '')
redis.pcall('ZREM', ENDS, token or '')
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

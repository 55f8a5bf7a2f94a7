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
end)()

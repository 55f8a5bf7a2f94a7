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

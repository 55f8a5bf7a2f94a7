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
local function remember_deadline(token, ttl)
if redis.pcall('ZADD', ENDS, 'XX', 'CH', digits(server_ms() + ttl), token) ~= 1 then return end
if redis.call('PTTL', ENDS) < FENCE_MS - 86400000 then
for _, key in ipairs({OPEN, ENDS, F, S}) do redis.pcall('PEXPIRE', key, FENCE_MS) end
end
end
local function lengthen(token, ttl)
local left = until_end(token)
if left < 0 or left >= ttl then return left end
if shape then
members.set_longest(ttl)
members.expire(token, ttl)
else
for _, key in ipairs({K, L, H}) do redis.call('PEXPIRE', key, ttl) end
end
remember_deadline(token, ttl)
return ttl
end
local function extend_lease(record)
if record.kept then return until_end(ARG.token) end
return lengthen(ARG.token, tonumber(ARG.ttl) or record.ttl or tonumber(ARG.default))
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
local is_held, hold = find_hold(ARG.token, ARG.hold)
if not is_held and ARG.note and redis.call('EXISTS', ARG.note) == 1 then return answer_from_reads('released') end
if not is_held then return answer_without_lease() end
hold = hold or 'base'
local record = read_record(ARG.token)
if record.revoked then return answer_from_reads('revoked', {by = record.revoked}) end
local forgotten = hold ~= 'base' and not redis.call('ZSCORE', H, hold)
if forgotten and not ARG.renew then return answer_from_reads('no-hold') end
local left = extend_lease(record)
return answer('extended', {left = left, holds = count_holds(), forgotten = forgotten and 1, node = flat(node())})
end)()

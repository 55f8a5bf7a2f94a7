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
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'
local PAGE = 200
local now, most, from = server_ms(), math.min(tonumber(ARG.most), PAGE), tonumber(ARG.from) or 0
local names = {'success', 'failure', 'succeeded', 'failed', 'cut', 'forced'}
local fields = {clock = digits(now), ended = {}}
for i, value in ipairs(redis.call('HMGET', RUNS, unpack(names))) do fields[names[i]] = value end
fields.logged, fields.cut = fields.cut and redis.call('LLEN', LOG), nil
local function open_runs(tokens, step)
local told = {}
for i = 1, #tokens, step do
told[#told + 1] = redis.call('HGET', OPEN, tokens[i])
for behind = 1, told[#told] and step - 1 or 0 do told[#told + 1] = tokens[i + behind] end
end
return told
end
local function is_meant(line)
local ok, run = pcall(cjson.decode, line)
if not ok or type(run) ~= 'table' then return true, true end
local recent = not ARG.since or now - ((tonumber(run.b) or now) + (tonumber(run.d) or 0)) < tonumber(ARG.since)
local well = run.o == 'released' or run.x == '0' and not run.o
return recent and not (ARG.failed and well), recent
end
local by_content = ARG.since or ARG.failed
local page, recent = redis.call('LRANGE', LOG, from, from + (by_content and PAGE or most) - 1), not by_content
for _, line in ipairs(page) do
local meant, in_time = true, true
if by_content then meant, in_time = is_meant(line) end
recent = recent or in_time
if meant and #fields.ended < most then fields.ended[#fields.ended + 1] = line end
end
fields.further = recent and redis.call('LLEN', LOG) > from + #page and 1
fields.oldest = ARG.since and redis.call('LINDEX', LOG, -1)
if not ARG.from then
local going, from_now = {}, digits(now + 1)
if shape then
going = redis.call('ZRANGE', ENDS, from_now, '+inf', 'BYSCORE', 'LIMIT', 0, most)
fields.running = math.min(redis.call('ZCOUNT', ENDS, from_now, '+inf'), redis.call('ZCARD', M))
elseif value and redis.call('HEXISTS', OPEN, value) == 1 then
going, fields.running = {value}, 1
end
fields.going = open_runs(going, 1)
local over = redis.call('ZRANGE', ENDS, shape and digits(now) or '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, most, 'WITHSCORES')
fields.over = open_runs(over, 2)
end
return answer_from_reads('runs', fields)
end)()

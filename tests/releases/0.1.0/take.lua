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
local quarantine, slot, fence, mark, reply = tonumber(ARG.quarantine) or 0, nil, nil, nil, nil
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
local who, uptime, run_id = node()
local is_quarantined = quarantine > 0 and (not uptime or uptime < quarantine + 1) -- uptime is in whole seconds
local least, list, call_others = 0, nil, nil
local CLOSED = BASE .. 'closed'
local VISITS, HOSTS = BASE .. 'visits', 100 -- VISITS keeps the HOSTS hosts that came last
local function note_visit(met)
if not ARG.entry or redis.pcall('ZADD', VISITS, ms .. met, ARG.host) ~= 1 then return end
pcall(function()
if redis.call('ZCARD', VISITS) > HOSTS then redis.call('ZPOPMIN', VISITS) end
redis.call('PEXPIRE', VISITS, LOG_MS)
end)
end
local is_plain = value == false and ARG.claim == 'exclusive'
and not (is_quarantined or ARG.once or ARG.newest or ARG.seen or ARG.earlier)
if not is_plain or redis.call('EXISTS', R, Q, S, CLOSED) > 0 then
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
local once, expected = unpack(ARG.once and redis.call('HMGET', RUNS, 'once', 'expected') or {})
local tries = ARG.tries and redis.call('ZRANGE', BASE .. 'tries', 0, -1, 'WITHSCORES') or {}
if ARG.expected and string.match(expected or '', '^%d+ %d+') ~= ARG.expected then
redis.pcall('HSET', RUNS, 'expected', ARG.expected .. ' ' .. (string.match(expected or '', '%d+$') or ms))
redis.pcall('PEXPIRE', RUNS, LOG_MS)
end
local function is_within(began)
return math.abs(now - began) < tonumber(ARG.once or 0)
end
local function recent_success()
if not once then return nil end
local is_read, run = pcall(cjson.decode, once)
local began = is_read and type(run) == 'table' and tonumber(run.b)
or error('WRONGTYPE ' .. RUNS .. ' has no time of the last success')
return is_within(began) and {success = once, clock = ms}
end
local function tried_enough()
if not ARG.tries then return nil end
if ARG.earlier then tries = redis.call('ZRANGE', BASE .. 'tries', 0, -1, 'WITHSCORES') end
local count, first, last = 0, nil, nil
for i = 2, #tries, 2 do
if is_within(tries[i]) then count, first, last = count + 1, first or tries[i], tries[i - 1] end
end
if count < tonumber(ARG.tries) then return nil end
local _, text = find_run(last) -- nil if the log has forgotten it; others' runs may have begun since
return {tries = count, first = first, last = text, going = value, clock = ms}
end
local me, limit = ARG.waiter, tonumber(string.match(ARG.claim, '^slots:(%d+)$'))
local superseded, raise_newest
if ARG.newest then
local NEWEST, asked = BASE .. 'newest', tonumber(ARG.newest)
local newest = redis.call('GET', NEWEST)
local known = newest and tonumber(string.match(newest, '^%d+ ') or '')
if newest and not (known and known < 2 ^ 53) then return redis.error_reply('NONUMBER ' .. NEWEST .. ' is no number') end
superseded = known and known > asked and {newest = newest, clock = ms, node = who}
function raise_newest()
if known and known >= asked then return redis.call('PEXPIRE', NEWEST, FENCE_MS) end
redis.call('SET', NEWEST, table.concat({ARG.newest, ms, ARG.pid, ARG.host, ARG.label}, ' '), 'PX', FENCE_MS)
end
end
local freed = undo_earlier()
local function free_from(first)
local function are_taken(first, last)
return claim and redis.call('ZCOUNT', P, first, last) >= last - first + 1
end
local last = limit - 1
if are_taken(first, last) then
if are_taken(0, last) then return nil end
first = 0
end
while first < last do
local middle = math.floor((first + last) / 2)
if are_taken(first, middle) then first = middle + 1 else last = middle end
end
return first
end
local function free_slots()
local list, free = {}, free_from(tonumber(ARG.slot))
while free and free ~= list[1] and #list < 32 do
list[#list + 1] = free
free = free_from((free + 1) % limit)
end
return list
end
local function with_facts(fields)
fields.node = who
fields.longest = claim and redis.call('HGET', L, 'longest')
return fields
end
local function turned_away(outcome, fields)
if freed then hand_over() end
return answer_from_reads(outcome, fields)
end
local function refused(outcome, fields)
with_facts(fields)
local is_queueing, score = me and value ~= nil, nil
if is_queueing then score = redis.call('ZSCORE', Q, me) end
if not score and (is_queueing or not me) then note_visit(outcome == 'held' and '1' or '3') end
if is_queueing then
fields.queued = not score and 1
local ticket = ARG.ticket or score and digits(score) or behind_all(Q)
if not score then redis.call('ZADD', Q, ticket, me) end
redis.call('PEXPIRE', Q, QUEUE_MS) -- each waiter prolongs Q: the first in line may be dead
if raise_newest then raise_newest() end
fields.rank, fields.ticket = redis.call('ZRANK', Q, me), ticket
end
return turned_away(outcome, fields)
end
local function keep_for_holder()
local left, seen_fence = tonumber(ARG.seen_left), tonumber(ARG.seen_fence)
if not ARG.seen or not ARG.seen_run_id or run_id == '' or run_id == ARG.seen_run_id then return false end
if not left or left < 1 or not seen_fence then return false end
local count = counter(ARG.seen_slot)
if count > seen_fence or count == seen_fence and ARG.seen_claim ~= 'shared' then return false end
redis.call('SET', R, ARG.seen, 'PX', left)
return ARG.seen
end
local function answer_without_grant()
if is_held_by(ARG.token) then -- an earlier reply was lost
lengthen(ARG.token, tonumber(ARG.ttl))
local known = redis.call('HMGET', record_of(ARG.token), 'fence', 'since')
return answer('granted', with_facts({fence = known[1] or '0', began = known[2] and string.sub(known[2], 1, -4),
slot = claim and redis.call('ZSCORE', P, ARG.token)}))
end
if superseded then
note_visit('3')
return turned_away('superseded', superseded)
end
local ran = recent_success()
if ran then
note_visit('2')
return turned_away('ran', ran)
end
local tried = tried_enough()
if tried then
note_visit('3')
return turned_away('tried', tried)
end
local closed = redis.call('GET', CLOSED)
if closed then
if me and redis.call('GET', R) == me then redis.call('DEL', R) end
return refused('closed', {left = redis.call('PTTL', CLOSED), closed = closed})
end
if value ~= false and claim ~= ARG.claim then
local is_other = value ~= nil and (limit or claim and claim ~= 'shared')
if not is_other then return refused('held', holders(10)) end
note_visit('3')
return turned_away('other-claim', with_facts(holders(10)))
end
local reserved = redis.call('GET', R) or value == false and keep_for_holder()
if is_quarantined then return refused('quarantined', {}) end
if not fits(ARG.claim) then return refused('held', holders(10)) end
if ARG.slot and not is_vacant() then return turned_away('taken', with_facts({free = free_slots()})) end
if me and reserved == me then
redis.call('DEL', R)
redis.call('ZREM', Q, me)
return nil
end
if not reserved then
if redis.call('EXISTS', Q) == 0 then return nil end
if me and ARG.ticket then redis.call('ZADD', Q, 'NX', ARG.ticket, me) end -- after a freeze, with its old ticket
reserved = call_next(me)
if reserved == nil then return refused('held', holders(10)) end -- the first in line does not fit
if not reserved or reserved == me then return nil end
end
local alike = string.sub(reserved, 1, 1) == (limit and 'p' or 's') and ARG.claim ~= 'exclusive'
local has_room = not limit or not claim or redis.call('ZCARD', P) + 2 <= limit
if alike and has_room and redis.call('EXISTS', Q) == 0 then return nil end
return refused('reserved', {left = redis.call('PTTL', R)})
end
reply = answer_without_grant()
if reply then return reply end
if raise_newest then raise_newest() end
if ARG.claim == 'exclusive' then
least = counter('all')
else
slot = limit and (tonumber(ARG.slot) or free_from(0))
local count = limit and math.max(counter(slot), counter()) + 1 or counter()
local is_seed = (limit or count == 0) and count < tonumber(ARG.now or 0)
fence = is_seed and ARG.now or digits(count)
mark = ARG.claim .. '.' .. string.sub(redis.sha1hex(ARG.token), 1, 16)
claim, list, call_others = ARG.claim, list_member, hand_over
end
end
if not fence then
local known = redis.call('GET', F) or '0'
if not (string.find(known, '^%d+$') and tonumber(known) < 2 ^ 53) then -- as in `counter`
return redis.error_reply('NOCOUNTER ' .. F .. ' is no fencing counter')
end
fence = math.max(tonumber(known), least) + 1
fence = fence < tonumber(ARG.now or 0) and ARG.now or string.format('%.0f', fence)
end
local count, since, began = fence, us, ms
if value == false then
value = mark or ARG.token
redis.call('SET', K, value, 'NX', 'PX', ARG.ttl)
redis.call('DEL', L, H, M, P) -- remains of a lock whose value was deleted by hand
end
local record = mark and BASE .. 'member:' .. ARG.token or L
redis.call('HSET', record, 'token', ARG.token, 'fence', fence, 'ttl', ARG.ttl, 'since', since, 'host', ARG.host,
'pid', ARG.pid, 'user', ARG.user, 'label', ARG.label)
if ARG.once then redis.call('HSET', record, 'once', ARG.labelled and 'labelled' or '1') end
if ARG.renewal then redis.call('HSET', record, 'renewal', ARG.renewal) end
if mark then
list(count, slot)
else
redis.call('SET', F, count, 'PX', FENCE_MS)
redis.call('PEXPIRE', L, ARG.ttl)
end
local function begin_run()
local run = cjson.decode(ARG.entry)
run.t, run.b, run.f, run.i = ARG.token, began, fence, slot and tostring(slot)
local most = math.max((run.n or 20) + 20, 40)
if redis.call('LPUSH', LOG, cjson.encode(run)) > most then redis.call('LTRIM', LOG, 0, most - 1) end
if redis.call('PTTL', LOG) < tonumber(FENCE_MS) then
for _, key in ipairs({LOG, RUNS, BASE .. 'visits'}) do redis.call('PEXPIRE', key, LOG_MS) end
end
end
if ARG.entry then pcall(begin_run) end
note_visit('0')
reply = {'outcome', 'granted', 'fence', fence, 'node', who, 'began', began}
if mark then
call_others()
reply[9], reply[10] = 'longest', redis.call('HGET', L, 'longest')
if slot then reply[11], reply[12] = 'slot', slot end
end
return reply

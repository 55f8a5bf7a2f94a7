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
local function with_end(run, duration, word, code, by)
local outcome = '"'
if word == 'exited' then outcome = '","x":"' .. code .. '"'
elseif word == 'signaled' then outcome = '","s":"' .. code .. '"'
elseif word then outcome = '","o":"' .. word .. (word == 'expired' and '","x":"' .. code or '') .. '"' end
if by then outcome = outcome .. ',"y":' .. cjson.encode(by) end
if type(duration) == 'number' then duration = string.format('%.0f', math.max(duration, 0)) end
local behind = string.find(run, ',"d":"', 1, true) or #run
return string.sub(run, 1, behind - 1) .. ',"d":"' .. duration .. outcome .. '}'
end
local function push(runs, most)
local over = redis.call('LPUSH', LOG, unpack(runs)) - most
if over > 0 then
redis.call('LTRIM', LOG, '0', over == 1 and '-2' or -1 - over)
if redis.call('HSETNX', RUNS, 'cut', '1') == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
end
if redis.call('PTTL', LOG) < tonumber(FENCE_MS) then
for _, key in ipairs({LOG, RUNS, BASE .. 'visits'}) do redis.call('PEXPIRE', key, LOG_MS) end
end
end
local function most_of(run)
local _, at = string.find(run, 'n":"', 1, true)
return at and tonumber(string.match(run, '^%d+', at + 1)) or 20
end
local function end_run(token, run, duration, word, code, by, sorted)
redis.call('HDEL', OPEN, token)
redis.call('ZREM', ENDS, token)
run = with_end(run, duration, word, code, by)
local result = word == 'exited' and code == '0' and 'success' or 'failure'
if word == 'released' or word == 'expired' then result = nil end
local runs, most, is_last = {run}, most_of(run), true
if sorted then runs, most, is_last = sorted(run, most, result) end
push(runs, most)
if not result then return end
if is_last then redis.call('HSET', RUNS, result, run) end
local count = redis.call('HINCRBY', RUNS, result == 'success' and 'succeeded' or 'failed', '1')
if count == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
end
local is_plain = value == ARG.token and ARG.began and (ARG.outcome == 'exited' or ARG.outcome == 'signaled')
and not (ARG.gone or ARG.keep or ARG.note or ARG.once or ARG.errors) and (ARG.hold or 'base') == 'base'
if is_plain and redis.call('EXISTS', H, Q) == 0 then
redis.call('DEL', K, L)
local run, reply = redis.pcall('HGET', OPEN, ARG.token), {'outcome', 'released'}
local done, why = true, run
if type(run) == 'string' then
local duration = ARG.ended and ARG.began - ARG.ended or ARG.began
done, why = pcall(end_run, ARG.token, run, duration, ARG.outcome, ARG.code)
end
if not done or type(run) == 'table' then reply[3], reply[4] = 'unwritten', type(why) == 'table' and why.err or why end
return reply
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
local record = redis.call('HMGET', record_of(token), 'token', 'ttl', 'fence', 'revoked', 'since', 'kept')
if record[1] ~= (claim and token or value) then record = {} end
return {ttl = tonumber(record[2]), fence = record[3], revoked = revoked_by(record[4], record[5]), kept = record[6]}
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
local function remember_deadline(token, ttl)
if redis.pcall('ZADD', ENDS, 'XX', 'CH', digits(now + ttl), token) ~= 1 then return end
if redis.call('PTTL', ENDS) < FENCE_MS - 86400000 then
for _, key in ipairs({OPEN, ENDS, F, S}) do redis.pcall('PEXPIRE', key, FENCE_MS) end
end
end
local function lengthen(token, ttl)
local left = until_end(token)
if left < 0 or left >= ttl then return left end
if claim then
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
return tonumber(slot and redis.call('HGET', S, slot) or not slot and redis.call('GET', F)) or 0
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
local SEARCHED = 200 -- how many of the newest runs of the log are searched
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
local function signature(text)
local count = 0
for at in string.gmatch(text, '()[^\128-\191]') do
count = count + 1
if count > 100 then text = string.sub(text, 1, at - 1) break end
end
text = string.gsub(text, '%c', '?')
return text ~= '' and text or nil
end
local function taken_out(runs, first, at)
local newest = redis.call('LINDEX', LOG, 0)
if not at and #runs == 1 and not (newest and ended_at(newest) > first) then return runs end
local taken, ends = 0, {}
for i, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
if i - 1 > (at or -1) and ended_at(run) <= first then break end
if i - 1 ~= at then runs[#runs + 1] = run end
taken = i
end
redis.call('LTRIM', LOG, taken, -1)
for _, run in ipairs(runs) do ends[run] = ended_at(run) end
table.sort(runs, function(one, other) return ends[one] < ends[other] end)
return runs
end
local function is_newer(run, result)
local known = ended_at(redis.call('HGET', RUNS, result) or '')
return known <= ended_at(run) or known > now
end
local function sorted_at(at)
return function(run, most, result)
return taken_out({run}, ended_at(run), at), at and math.huge or most, result and is_newer(run, result)
end
end
local function end_open_run(token, word, code, by, beside)
local run = redis.call('HGET', OPEN, token)
if not run or word == 'unused' then
redis.call('HDEL', OPEN, token)
redis.call('ZREM', ENDS, token)
return
end
local ended = tonumber(ARG.ended) or 0
local duration = ARG.began and ARG.began - ended or now - ended - began_at(run)
end_run(token, run, duration, word, code, by and signature(by), beside and sorted_at())
end
local function last_force()
local forced = redis.call('HGET', RUNS, 'forced')
return forced and cjson.decode(forced)
end
local function end_by(forced, run, deadline)
local at = forced and tonumber(forced.b)
if at and at <= now and began_at(run) <= at and (deadline or at) >= at then return at end
end
local function close_runs()
pcall(function()
local tokens, deadlines = {}, {}
local over = claim and redis.call('ZRANGE', ENDS, '-inf', ms, 'BYSCORE', 'WITHSCORES')
or redis.call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
for i = 1, #over, 2 do
if over[i] ~= ARG.token then tokens[#tokens + 1], deadlines[#tokens + 1] = over[i], over[i + 1] end
end
if #tokens == 0 then return end
local most = most_of(ARG.entry or redis.call('HGET', OPEN, tokens[#tokens]) or '')
local from = math.max(#tokens - most, 1) -- one run more than the log keeps, so that push cuts the log
local runs, closed, first, forced = redis.call('HMGET', OPEN, unpack(tokens, from)), {}, math.huge, last_force()
for i = 1, #tokens, UNPACKED do
local last = math.min(i + UNPACKED - 1, #tokens)
redis.call('HDEL', OPEN, unpack(tokens, i, last))
redis.call('ZREM', ENDS, unpack(tokens, i, last))
end
for i, run in ipairs(runs) do
if run then
local ended = math.min(deadlines[from + i - 1], now)
local at = end_by(forced, run, ended)
closed[#closed + 1] = with_end(run, (at or ended) - began_at(run), at and 'revoked', nil, at and forced.y)
first = math.min(first, at or ended)
end
end
if #closed > 0 then push(taken_out(closed, first), most) end
end)
end
local AGAIN_MS = 5000 -- how long a release is sent again
local is_held, hold = find_hold(ARG.token, ARG.hold)
local keep, beside = tonumber(ARG.keep), claim
local rest = ARG.note and math.max(is_held and until_end(ARG.token) or redis.call('PTTL', R), 1)
local unnoted, unwritten
local function failure_of(write, ...)
local done, why = pcall(write, ...)
if not done then return why end
end
local function told_run()
return '{"b":"' .. digits(now - ARG.began) .. '",' .. string.sub(ARG.entry, 2)
end
local function note_once()
local is_loss, known = ARG.gone == 'lost', redis.call('HMGET', RUNS, 'once', 'once_before')
local run = with_end(told_run(), ARG.began - (ARG.ended or 0), is_loss and 'lost' or 'exited', ARG.code)
for i, field in ipairs({'once', 'once_before'}) do
if known[i] and string.find(known[i], '"t":"' .. ARG.token .. '"', 1, true) then
if is_loss then redis.call('HSET', RUNS, field, run) end
return
end
end
local fence = number_of(run, 'f')
if fence > (number_of(known[1] or '', 'f') or 0) then
redis.call('HSET', RUNS, 'once', run, known[1] and 'once_before' or 'once', known[1] or run)
elseif fence > (number_of(known[2] or '', 'f') or 0) then
redis.call('HSET', RUNS, 'once_before', run)
end
redis.call('PEXPIRE', RUNS, LOG_MS)
end
local function leave_note()
if ARG.note then redis.pcall('SET', ARG.note, '', 'PX', rest) end
end
local function has_text(run, text)
return string.find(run, text, 1, true) ~= nil
end
local function has_outcome(run)
return has_text(run, ',"x":"') or has_text(run, ',"s":"') or has_text(run, ',"o":"')
end
local function is_told(run)
if not has_text(run, ',"o":"') then return has_outcome(run) end
return has_text(run, ',"o":"too-long"') or has_text(run, ',"o":"released"')
end
local function find_logged(token)
for at, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
if string.find(run, '"t":"' .. token .. '"', 1, true) then return at - 1, run end
end
end
local function is_cut_behind()
local oldest = redis.call('LINDEX', LOG, SEARCHED - 1)
if not oldest and redis.call('HEXISTS', RUNS, 'cut') == 1 then oldest = redis.call('LINDEX', LOG, -1) end
return oldest and ended_at(oldest) > now - (tonumber(ARG.ended) or 0) - AGAIN_MS
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
local deadline = tonumber(redis.call('ZSCORE', ENDS, token) or nil)
local run, at = redis.call('HGET', OPEN, token), nil
if word == 'unused' then return end_open_run(token, word) end
if not run then
at, run = find_logged(token)
if run and has_outcome(run) then return end
end
if not run then return end
local forced = not late and last_force()
local ended = late and (at and ended_at(run) or math.min(deadline or math.huge, now)) or end_by(forced, run, deadline)
if late then
word = 'expired'
elseif ended then
word, code, by = 'revoked', nil, forced.y
end
local told_ms = tonumber(ARG.ended) or 0
local duration = ended and ended - began_at(run) or ARG.began and ARG.began - told_ms or now - told_ms - began_at(run)
end_run(token, run, duration, word, code, by and signature(by), sorted_at(at))
end
local function remember_forgotten(word)
if ARG.entry and word ~= 'unused' then
end_run(ARG.token, told_run(), ARG.began - (ARG.ended or 0), word, ARG.code, nil, sorted_at())
end
end
local function keep_errors()
local errors, front = BASE .. 'errors', '{"t":"' .. ARG.token .. '"'
for _, kept in ipairs(redis.call('LRANGE', errors, 0, -1)) do
if string.sub(kept, 1, #front) == front then return end
end
redis.call('LPUSH', errors, ARG.errors)
redis.call('LTRIM', errors, 0, 9)
redis.call('PEXPIRE', errors, LOG_MS)
end
local function remember(write, ...)
unnoted = ARG.once and failure_of(note_once)
unwritten = failure_of(write, ...) or ARG.errors and failure_of(keep_errors)
end
if is_held then
local left = redis.call('ZCARD', H)
if left > 0 then
if not ARG.hold then return answer_from_reads('newest', {hold = redis.call('ZREVRANGE', H, 0, 0)[1]}) end
if hold then redis.call('ZREM', H, hold) else hold = redis.call('ZPOPMAX', H)[1] end
left = redis.call('ZCARD', H)
elseif hold and hold ~= 'base' then
return answer_from_reads('still-held', {holds = 1}) -- released before; only the outer hold is left
end
local is_unsure = ARG.outcome == 'lost' or not ARG.began
local record = record_of(ARG.token)
local by = is_unsure and revoked_by(unpack(redis.call('HMGET', record, 'revoked', 'since')))
local is_freed = left == 0 and not keep
if is_freed then
drop(ARG.token)
leave_note()
elseif left == 0 and not (read_record(ARG.token).kept and until_end(ARG.token) <= keep) then
if claim then members.expire(ARG.token, keep, true) else redis.call('PEXPIRE', K, keep) end
redis.pcall('HSET', record, 'kept', us)
if claim then redis.pcall('HSET', L, 'some_kept', 1) else redis.call('PEXPIRE', L, keep) end
end
if not hold or hold == 'base' then
local word = by and 'revoked' or ARG.gone or ARG.outcome or 'released'
if ARG.gone then -- the loss was told, but the lease is here again
remember(correct_end, ARG.token, word, ARG.code, by)
else
remember(end_open_run, ARG.token, word, ARG.code, by, beside)
end
end
if is_freed then hand_over() end
local fields = {holds = left > 0 and left, unnoted = unnoted, unwritten = unwritten}
return answer(left > 0 and 'still-held' or 'released', fields)
end
local known, has_room = told_end(ARG.token), is_vacant()
local is_outer = not ARG.hold or ARG.hold == 'base'
local is_promised = is_outer and (value == false or claim) and redis.call('GET', R) == ARG.token
local reply = {'outcome', 'released'}
if not is_promised then
reply = answer_without_lease()
elseif keep then
redis.call('PEXPIRE', R, keep)
else
redis.call('DEL', R)
end
local _, _, run_id = node()
if not known and ARG.run_id and (ARG.gone or has_room) and run_id ~= '' and run_id ~= ARG.run_id then
remember(remember_forgotten, ARG.gone or ARG.outcome or 'unused')
elseif ARG.gone then
remember(correct_end, ARG.token, ARG.gone, ARG.code)
elseif ARG.code and not ARG.began then -- a release by token; the run itself tells its end later
remember(correct_end, ARG.token, nil, ARG.code, nil, true)
elseif ARG.once then
unnoted = failure_of(note_once)
end
if is_promised and not keep then
leave_note()
hand_over()
end
local function add(name, field)
if field then reply[#reply + 1], reply[#reply + 2] = name, field end
end
add('known', not is_promised and known)
add('unnoted', unnoted)
add('unwritten', unwritten)
return reply

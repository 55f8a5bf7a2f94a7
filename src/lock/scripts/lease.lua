-- needs state, node
-- The leases of a lock: their records, holds and holders, how they are extended, their fencing counters.

local function record_of(token)
  return claim and BASE .. 'member:' .. token or L
end

-- Returns whether the token holds the lock, and its hold. (Another library's token may look like `x.y`, redlock's form
-- of the token x with the hold y. Then all of it is the token, and the hold is nil.)
local function find_hold(token, hold)
  if is_held_by(token) then return true, hold end
  return hold and not claim and is_held_by(token .. '.' .. hold), nil
end

-- The time (ms) until the lease of this token ends; -1 if it never expires. The token must hold the lock.
local function until_end(token)
  if claim then return redis.call('ZSCORE', M, token) - now end
  return redis.call('PTTL', K)
end

-- The user who revoked a lease; nil or false if nobody has. The arguments are fields of its record. `by`: the user who
-- revoked this lease alone. `since`: the time of the grant (us). A revocation of all members counts for each lease that
-- was granted before it. (If `since` is in the future, the clock was set back after the grant.)
local function revoked_by(by, since)
  if by or not claim then return by end
  revoked_all = revoked_all or redis.call('HGET', L, 'revoked') or ''
  local at, by_all = string.match(revoked_all, '^(%d+) (.*)$')
  since = tonumber(since) or 0
  return at and (since <= tonumber(at) or since > tonumber(us)) and by_all
end

-- The record of this token's lease; without a ttl and a fence if another library took it. The token must hold the lock.
local function read_record(token)
  local record = redis.call('HMGET', record_of(token), 'token', 'ttl', 'fence', 'revoked', 'since')
  if record[1] ~= (claim and token or value) then record = {} end
  return {ttl = tonumber(record[2]), fence = record[3], revoked = revoked_by(record[4], record[5])}
end

-- The number of holds. Without a set of holds there is one hold: 'base', which took the lock.
local function count_holds()
  return math.max(redis.call('ZCARD', H), 1)
end

-- The answer of a script that may have written nothing. A replica must not answer: this HDEL changes nothing, but fails
-- on a replica.
local function answer_from_reads(outcome, fields)
  local refused = redis.pcall('HDEL', L, '')
  if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then error(refused.err) end
  return answer(outcome, fields)
end

-- The holder with this token, as a list of fields. `value` is the first ARG.bytes bytes of the token (nil: all of it).
-- A lease of another library has no record, so the list has only `value` and `left`.
local function holder(token)
  local record, fields = redis.call('HGETALL', record_of(token)), {}
  for i = 1, #record, 2 do fields[record[i]] = record[i + 1] end
  if fields.token == token then fields.now = us else fields = {} end
  fields.revoked = fields.token and revoked_by(fields.revoked, fields.since)
  fields.value, fields.left = string.sub(token, 1, tonumber(ARG.bytes) or -1), until_end(token)
  if claim then fields.claim, fields.slot = claim, redis.call('ZSCORE', P, token) end
  return flat(fields)
end

-- The holders of the lock, as the fields of an answer: of the members at most `most` (nil: all), and always the one
-- whose lease lasts longest.
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

-- True if no present lease is in the way of a lease of ARG.claim (nil: any claim) in ARG.slot (nil: any slot).
local function is_vacant()
  if not claim then return value == false end
  if ARG.claim and claim ~= ARG.claim then return false end
  return not ARG.slot or #redis.call('ZRANGE', P, ARG.slot, ARG.slot, 'BYSCORE') == 0
end

-- The answer if this node does not have the lease. `gone`: there is room for it. `other`: others hold the lock.
local function answer_without_lease()
  if is_vacant() then
    return answer_from_reads('gone', {node = node(), longest = claim and redis.call('HGET', L, 'longest')})
  end
  return answer_from_reads('other', holders(10))
end

-- Makes the lease of this token last ttl ms from now, but never shortens it. Returns the rest of the lease (ms); -1 if
-- it never expires.
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

-- Makes the lease of ARG.token last at least for a ttl (ms) from now: ARG.ttl, else the ttl in `record` (from
-- read_record), else ARG.default. Returns the rest of the lease (ms).
local function extend_lease(record)
  return lengthen(ARG.token, tonumber(ARG.ttl) or record.ttl or tonumber(ARG.default))
end

-- A score above all scores of a sorted set: the server's time (us), but at least the largest score plus one.
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

-- A fencing counter; 0 if it is missing. `slot`: the number of a slot; 'all' for the largest counter of any slot; nil
-- for the counter of the lock. Fails if the counter is no number below 2^53: from there on, leases would share a number.
local function counter(slot)
  local count = slot and redis.call('HGET', S, slot) or not slot and redis.call('GET', F) or '0'
  if string.find(count, '^%d+$') and tonumber(count) < 2 ^ 53 then return tonumber(count) end
  error('NOCOUNTER ' .. (slot and S or F) .. ' is no fencing counter', 0)
end

-- Sets the fencing counter of this slot to n, and raises the counter 'all' to at least n. With slot nil, sets the
-- counter of the lock.
local function set_counter(n, slot)
  if not slot then return redis.call('SET', F, n, 'PX', FENCE_MS) end
  redis.call('HSET', S, slot, n, 'all', digits(math.max(n, counter('all'))))
  redis.call('PEXPIRE', S, FENCE_MS)
end

-- Adds the lease of ARG.token to the members, for ARG.ttl ms, and sets the fencing counter to `count`. `slot`: nil for
-- a shared lease. The lease's record must exist already, because members.expire sets its expiry.
local function list_member(count, slot)
  if slot then redis.call('ZADD', P, slot, ARG.token) end
  set_counter(count, slot)
  members.expire(ARG.token, tonumber(ARG.ttl))
end

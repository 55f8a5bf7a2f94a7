-- Stands behind line.lua in all scripts but undo.lua: records, holds, the fencing counter, identity.
local FENCE_MS = 8640000000  -- the fencing counter and the memory outlive their last use by 100 days

-- What has run out at the place that is named does not stand in its way, though it was not swept yet.
if shape and unswept and ARG.place then
  for _, member in ipairs(redis.call('ZRANGE', P, ARG.place, ARG.place, 'BYSCORE')) do
    if not mine(member) then forget({member}) end
  end
end

-- True if the lease is this token's, and the hold that it names. A token of another library may only look as if it named one.
local function whose(token, hold)
  if mine(token) then return true, hold end
  return hold and not shape and mine(token .. '.' .. hold), nil
end

-- The identity of the node: seconds since its start, less than none if its clock was set back behind that, and its run.
local function node()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return {uptime = '', run = ''} end
  local function field(name)
    local _, last = string.find(info, name, 1, true) -- a plain search is the fastest
    return string.match(info, '^[%w-]*', (last or #info) + 1)
  end
  return {uptime = field('uptime_in_seconds:'), run = field('run_id:')}
end

-- An answer that rests on what was read alone. A replica's word is none: it refuses a write, be it one that changes nothing.
local function seen(outcome, fields)
  local refused = redis.pcall('HDEL', L, '')
  if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then error(refused.err) end
  return answer(outcome, fields)
end

-- The rest of the lease of this token, which has the lock.
local function until_end(token)
  if shape then return redis.call('ZSCORE', M, token) - server_ms() end
  return redis.call('PTTL', K)
end

-- Where the record of this token is.
local function record_of(token)
  return shape and BASE .. 'member:' .. token or L
end

-- Who has revoked the lease with this record: alone, or together with all members that were granted before. (One that seems to come
-- from the future was granted before the clock was set back.)
local revoked_all -- that field, once it was read
local function revoked(by, since)
  if by or not shape then return by end
  revoked_all = revoked_all or redis.call('HGET', L, 'revoked') or ''
  local at, by_all = string.match(revoked_all, '^(%d+) (.*)$')
  since = tonumber(since) or 0
  return at and (since <= tonumber(at) or since > server_us()) and by_all
end

-- One holder of the lock, with the first ARG.bytes of its token (nil: all). Of another library's lease no more is known.
local function holder(token)
  local record, fields = redis.call('HGETALL', record_of(token)), {}
  for i = 1, #record, 2 do fields[record[i]] = record[i + 1] end
  if fields.token == token then fields.now = digits(server_us()) else fields = {} end
  fields.revoked = fields.token and revoked(fields.revoked, fields.since)
  fields.value, fields.left = string.sub(token, 1, tonumber(ARG.bytes) or -1), until_end(token)
  if shape then fields.claim, fields.slot = shape, redis.call('ZSCORE', P, token) end
  return flat(fields)
end

-- Those who have the lock, as the fields of an answer. At most so many members (nil: all), the one that lasts longest among them.
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
    if #listed ~= most and not known[token] and mine(token) then listed[#listed + 1] = holder(token) end
    known[token] = true
  end
  local live = '(' .. digits(server_ms())
  local soonest = redis.call('ZRANGE', M, live, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2] or server_ms()
  local members = redis.pcall('ZCOUNT', M, live, '+inf') -- a user of an older rule may not
  if type(members) ~= 'number' then members = redis.call('ZCARD', M) end
  return {holders = listed, members = members, longest = redis.call('HGET', L, 'longest'), next = soonest - server_ms()}
end

-- True if ARG.claim could be had at ARG.place, as far as the members go.
local function is_vacant()
  if not shape then return value == false end
  if ARG.claim and shape ~= ARG.claim then return false end
  return not ARG.place or #redis.call('ZRANGE', P, ARG.place, ARG.place, 'BYSCORE') == 0
end

-- The answer about a lease that is not here: there is room for it, or others have the lock.
local function not_mine()
  if is_vacant() then
    return seen('gone', {node = flat(node()), longest = shape and redis.call('HGET', L, 'longest')})
  end
  return seen('other', holders(10))
end

-- The counter of fencing tokens: that of the place, or of the name.
local function counter(place)
  return tonumber(place and redis.call('HGET', S, place) or not place and redis.call('GET', F)) or 0
end

-- Every place counts for itself, and raises one counter of all places.
local function set_counter(n, place)
  if not place then return redis.call('SET', F, digits(n), 'PX', FENCE_MS) end
  redis.call('HSET', S, place, digits(n), 'all', digits(math.max(n, counter('all'))))
  redis.call('PEXPIRE', S, FENCE_MS)
end

-- A member lasts ttl ms from now: notes that. Its record stays a little longer.
local function lasts(token, ttl)
  local ends = server_ms() + ttl
  redis.call('ZADD', M, digits(ends), token)
  redis.call('PEXPIREAT', record_of(token), digits(ends + 1000))
  settle()
end

-- Notes the ttl of a member: as long may a node that restarts have forgotten it.
local function note_ttl(ttl)
  redis.call('HSET', L, 'longest', digits(math.max(ttl, tonumber(redis.call('HGET', L, 'longest')) or 0)))
end

-- Gives the lock to ARG.token for ARG.ttl, beside those that it fits beside, with this fencing token; the counter of them then
-- stands at `count`. ARG.held: for how long (ms) the token has had it already.
local function grant(fence, count, place)
  if value == false then
    shape = ARG.claim ~= 'exclusive' and ARG.claim or nil
    value = shape and shape .. '.' .. string.sub(redis.sha1hex(ARG.token), 1, 16) or ARG.token
    redis.call('SET', K, value, 'NX', 'PX', ARG.ttl)
    redis.call('DEL', L, H, M, P) -- an older version's --force leaves members that are no more
  end
  if place then redis.call('ZADD', P, place, ARG.token) end
  if shape then note_ttl(tonumber(ARG.ttl)) end
  set_counter(count, place)
  local record, since = record_of(ARG.token), server_us() - (tonumber(ARG.held) or 0) * 1000
  redis.call('HSET', record, 'token', ARG.token, 'fence', digits(fence), 'ttl', ARG.ttl, 'since', digits(since),
    'host', ARG.host, 'pid', ARG.pid, 'user', ARG.user, 'label', ARG.label)
  if shape then lasts(ARG.token, ARG.ttl) else redis.call('PEXPIRE', L, ARG.ttl) end
end

-- The record of the lease of this token, which has the lock; empty for another library's.
local function lease(token)
  local record = redis.call('HMGET', record_of(token), 'token', 'ttl', 'fence', 'revoked', 'since', 'kept')
  if record[1] ~= (shape and token or value) then record = {} end
  return {ttl = tonumber(record[2]), fence = record[3], revoked = revoked(record[4], record[5]), kept = record[6]}
end

-- The lease of this token ends ttl ms from now: notes that in the memory, if its run is there (journal.lua). A run may outlast
-- what the memory lasts.
local function note_deadline(token, ttl)
  if redis.pcall('ZADD', ENDS, 'XX', 'CH', digits(server_ms() + ttl), token) ~= 1 then return end
  if redis.call('PTTL', ENDS) < FENCE_MS - 86400000 then
    for _, key in ipairs({OPEN, ENDS}) do redis.pcall('PEXPIRE', key, FENCE_MS) end
  end
end

-- An exclusive lease lasts ttl ms from now.
local function expire(token, ttl)
  for _, key in ipairs({K, L, H}) do redis.call('PEXPIRE', key, ttl) end
  note_deadline(token, ttl)
end

-- Makes the lease last ttl ms from now, but never shortens it. Returns its rest; -1 when it never expires.
local function lengthen(token, ttl)
  local left = until_end(token)
  if left < 0 or left >= ttl then return left end
  redis.call('PEXPIRE', F, FENCE_MS)
  if shape then
    redis.call('PEXPIRE', S, FENCE_MS)
    note_ttl(ttl)
    lasts(token, ttl)
    note_deadline(token, ttl)
  else
    expire(token, ttl)
  end
  return ttl
end

-- The same for ARG.ttl, or what the lease was taken for, or ARG.default where that is not recorded. A lease that is kept after
-- its job is not prolonged: the request is late. What a hold has added stays when it ends: others may count on it by then.
local function extend_lease(lease)
  if lease.kept then return until_end(ARG.token) end
  return lengthen(ARG.token, tonumber(ARG.ttl) or lease.ttl or tonumber(ARG.default))
end

-- A place behind all others: the present time, or one more than the last place.
local function behind_all(set)
  local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
  return digits(math.max(server_us(), (tonumber(last) or 0) + 1))
end

-- Enters a hold that may be known already. Without a set there is only 'base', the hold that took the lock.
local function add_hold(hold)
  if redis.call('EXISTS', H) == 0 then
    if hold == 'base' then return end
    redis.call('ZADD', H, 0, 'base')
  end
  redis.call('ZADD', H, 'NX', hold == 'base' and 0 or behind_all(H), hold)
  local left = redis.call('PTTL', K)
  if left < 0 then redis.call('PERSIST', H) else redis.call('PEXPIRE', H, math.max(left, 1)) end
end

local function count_holds()
  return math.max(redis.call('ZCARD', H), 1)
end

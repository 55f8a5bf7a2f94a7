-- Stands behind record.lua in what makes leases last longer.

-- The lease of this token ends ttl ms from now: writes that into the memory, if its run is there (run.lua). A run may
-- last longer than the memory and the counters, so their expiry is renewed too.
local function remember_deadline(token, ttl)
  if redis.pcall('ZADD', ENDS, 'XX', 'CH', digits(server_ms() + ttl), token) ~= 1 then return end
  if redis.call('PTTL', ENDS) < FENCE_MS - 86400000 then
    for _, key in ipairs({OPEN, ENDS, F, S}) do redis.pcall('PEXPIRE', key, FENCE_MS) end
  end
end

-- Makes the lease last ttl ms from now, but never shortens it. Returns its rest; -1 when it never expires.
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

-- The same for ARG.ttl, or what the lease was taken for, or ARG.default where that is not recorded. A lease that is
-- kept after its job is not prolonged: the request is late. What a hold has added stays when it ends: others may count
-- on it by then.
local function extend_lease(record)
  if record.kept then return until_end(ARG.token) end
  return lengthen(ARG.token, tonumber(ARG.ttl) or record.ttl or tonumber(ARG.default))
end

-- A score behind all others of a sorted set: the present time, or one more than the last score.
local function behind_all(set)
  local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
  return digits(math.max(server_us(), (tonumber(last) or 0) + 1))
end

-- Enters a hold that may be known already.
local function add_hold(hold)
  if redis.call('EXISTS', H) == 0 then
    if hold == 'base' then return end
    redis.call('ZADD', H, 0, 'base')
  end
  redis.call('ZADD', H, 'NX', hold == 'base' and 0 or behind_all(H), hold)
  local left = redis.call('PTTL', K)
  if left < 0 then redis.call('PERSIST', H) else redis.call('PEXPIRE', H, math.max(left, 1)) end
end

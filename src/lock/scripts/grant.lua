-- Stands behind record.lua in what grants: the lease, and the counter of fencing tokens.

-- The counter of fencing tokens: that of the place, or of the name.
local function counter(place)
  return tonumber(place and redis.call('HGET', S, place) or not place and redis.call('GET', F)) or 0
end

-- Every place counts for itself, and raises one counter of all places.
local function set_counter(n, place)
  if not place then return redis.call('SET', F, n, 'PX', FENCE_MS) end
  redis.call('HSET', S, place, n, 'all', digits(math.max(n, counter('all'))))
  redis.call('PEXPIRE', S, FENCE_MS)
end

-- Gives the lock to ARG.token for ARG.ttl, beside those that it fits beside, with this fencing token; the counter of
-- them then stands at `count`. ARG.held: for how long (ms) the token has had it already.
local function grant(fence, count, place)
  if value == false then
    shape = ARG.claim ~= 'exclusive' and ARG.claim or nil
    value = shape and shape .. '.' .. string.sub(redis.sha1hex(ARG.token), 1, 16) or ARG.token
    redis.call('SET', K, value, 'NX', 'PX', ARG.ttl)
    redis.call('DEL', L, H, M, P) -- what a value that was deleted by hand has left is nothing
  end
  if place then redis.call('ZADD', P, place, ARG.token) end
  if shape then members.set_longest(tonumber(ARG.ttl)) end
  set_counter(count, place)
  local since = ARG.held and digits(server_us() - ARG.held * 1000) or server_us()
  redis.call('HSET', record_of(ARG.token), 'token', ARG.token, 'fence', fence, 'ttl', ARG.ttl, 'since', since,
    'host', ARG.host, 'pid', ARG.pid, 'user', ARG.user, 'label', ARG.label)
  if shape then members.expire(ARG.token, ARG.ttl) else redis.call('PEXPIRE', L, ARG.ttl) end
end

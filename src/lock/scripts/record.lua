-- Stands behind members.lua: the record of a lease.

-- Where the record of this token is.
local function record_of(token)
  return shape and BASE .. 'member:' .. token or L
end

-- True if the lease is this token's; and the hold that the token names. (A token of another library may look as if it
-- named a hold, and does not.)
local function find_hold(token, hold)
  if is_held_by(token) then return true, hold end
  return hold and not shape and is_held_by(token .. '.' .. hold), nil
end

-- The rest of the lease of this token, which has the lock.
local function until_end(token)
  if shape then return redis.call('ZSCORE', M, token) - server_ms() end
  return redis.call('PTTL', K)
end

-- Who has revoked the lease with this record: `by` if it was revoked alone, else who has revoked all members that were
-- granted before a moment. (A member that seems to come from the future was granted before the clock was set back.)
local function revoked_by(by, since)
  if by or not shape then return by end
  revoked_all = revoked_all or redis.call('HGET', L, 'revoked') or ''
  local at, by_all = string.match(revoked_all, '^(%d+) (.*)$')
  since = tonumber(since) or 0
  return at and (since <= tonumber(at) or since > tonumber(server_us())) and by_all
end

-- The record of the lease of this token, which has the lock; empty for another library's.
local function read_record(token)
  local record = redis.call('HMGET', record_of(token), 'token', 'ttl', 'fence', 'revoked', 'since', 'kept')
  if record[1] ~= (shape and token or value) then record = {} end
  return {ttl = tonumber(record[2]), fence = record[3], revoked = revoked_by(record[4], record[5]), kept = record[6]}
end

-- Without a set of holds there is only 'base', the one that took the lock.
local function count_holds()
  return math.max(redis.call('ZCARD', H), 1)
end

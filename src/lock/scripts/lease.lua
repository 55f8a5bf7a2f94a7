-- Stands behind the prelude in all scripts but leave.lua and rollback.lua: records, holds, the fencing counter, identity.
local FENCE_MS = 2592000000 -- the fencing counter outlives its last use by 30 days

-- True if the lease is this token's, and the hold that it names. A token of another library may only look as if it named one.
local function whose(token, hold)
  if mine(token) then return true, hold end
  return hold and mine(token .. '.' .. hold), nil
end

-- Large numbers in full: Lua writes 15 digits at most.
local function digits(n)
  return string.format('%.0f', n)
end

-- The server's clock; 0 where it is refused: no lock depends on it.
local function server_us()
  local t = redis.pcall('TIME')
  if t.err then return 0 end
  return t[1] * 1000000 + t[2]
end

-- The identity of the node: seconds since its start, and its run. A start in the future, by a clock
-- that was set back, counts as now.
local function node()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return {uptime = '', run = ''} end
  local uptime = string.match(info, 'uptime_in_seconds:(%-?%d+)') or ''
  if string.sub(uptime, 1, 1) == '-' then uptime = '0' end
  return {uptime = uptime, run = string.match(info, 'run_id:(%x+)') or ''}
end

-- An answer that rests on what was read alone. A replica's word is none: it refuses a write, be it one that changes nothing.
local function seen(outcome, fields)
  local refused = redis.pcall('HDEL', L, '')
  if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then error(refused.err) end
  return answer(outcome, fields)
end

-- The time until the lock may be free: the rest of the lease, or of the reservation.
local function until_free()
  return redis.call('PTTL', value == false and R or K)
end

-- The holders of the lock, with the first ARG.bytes of its value (nil: all). Of another library's lease no more is known.
local function holders()
  if value == false then return {} end
  if value == nil then return {{'type', redis.call('TYPE', K).ok, 'left', until_free()}} end
  local part = string.sub(value, 1, tonumber(ARG.bytes) or -1)
  local holder, record, ours = {'value', part, 'left', until_free()}, redis.call('HGETALL', L), false
  for i = 1, #record, 2 do ours = ours or record[i] == 'token' and record[i + 1] == value end
  if ours then
    for i = 1, #record do holder[#holder + 1] = record[i] end
    holder[#holder + 1] = 'now'
    holder[#holder + 1] = digits(server_us())
  end
  return {holder}
end

-- The answer about a lease that is not here: the lock is free, or others have it.
local function not_mine()
  if fits(ARG.claim) then return seen('gone', {node = flat(node())}) end
  return seen('other', {holders = holders()})
end

local function counter()
  return tonumber(redis.call('GET', F)) or 0
end

local function set_counter(n)
  redis.call('SET', F, digits(n), 'PX', FENCE_MS)
end

-- Gives the free lock to ARG.token for ARG.ttl, with this fencing token; the counter of them then stands at `count`. ARG.held:
-- for how long (ms) the token has had it already.
local function grant(fence, count)
  redis.call('SET', K, ARG.token, 'NX', 'PX', ARG.ttl)
  value = ARG.token
  set_counter(count)
  redis.call('DEL', L, H)
  local since = server_us() - (tonumber(ARG.held) or 0) * 1000
  redis.call('HSET', L, 'token', value, 'fence', digits(fence), 'ttl', ARG.ttl, 'since', digits(since),
    'host', ARG.host, 'pid', ARG.pid, 'user', ARG.user, 'label', ARG.label)
  redis.call('PEXPIRE', L, ARG.ttl)
end

-- The record of the lease that there is; empty for another library's.
local function lease()
  local record = redis.call('HMGET', L, 'token', 'ttl', 'fence', 'revoked')
  if record[1] ~= value then return {} end
  return {ttl = tonumber(record[2]), fence = record[3], revoked = record[4]}
end

-- Makes the lease last ttl ms from now, but never shortens it. Returns its rest; -1 when it never expires.
local function lengthen(ttl)
  local left = until_free()
  if left < 0 or left >= ttl then return left end
  redis.call('PEXPIRE', K, ttl)
  redis.call('PEXPIRE', L, ttl)
  redis.call('PEXPIRE', H, ttl)
  redis.call('PEXPIRE', F, FENCE_MS)
  return ttl
end

-- The same on behalf of a hold, for ARG.ttl, or what the lease was taken for, or ARG.default where that is not recorded. Until
-- when a hold has made it last beyond that, the release of another hold must not take away; the note of it is not worth an
-- error where memory is short.
local function lengthen_for(hold, lease)
  local ttl = tonumber(ARG.ttl) or lease.ttl or tonumber(ARG.default)
  local left = lengthen(ttl)
  if lease.ttl and ttl > lease.ttl then
    local known = tonumber(redis.call('HGET', L, 'to:' .. hold)) or 0
    redis.pcall('HSET', L, 'to:' .. hold, digits(math.max(known, server_us() + ttl * 1000)))
  end
  return left
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
  local left = until_free()
  if left < 0 then redis.call('PERSIST', H) else redis.call('PEXPIRE', H, math.max(left, 1)) end
end

local function count_holds()
  return math.max(redis.call('ZCARD', H), 1)
end

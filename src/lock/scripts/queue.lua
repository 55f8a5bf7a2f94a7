-- Part of every script that takes, frees or waits. shared by way of concatenation.
-- KEYS: 1 lock (string: token)  2 lease (hash: owner record)  3 fence (string: counter)
--       4 queue (sorted set: waiter -> ticket)  5 reserved (string: waiter)  6 holds (sorted set: hold -> age)
-- ARGV: 1 what the channels' names begin with
local K, L, F, Q, R, H = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

local FENCE_MS = 2592000000 -- the fencing counter outlives its last use by 30 days
local RESERVED_MS = 1000    -- how long a free lock is kept for a waiter that was told, and is perhaps frozen
local QUEUE_MS = 900000     -- a queue that nobody looks after is forgotten

-- The server's clock; 0 where it is refused: no lock depends on it.
local function server_us()
  local t = redis.pcall('TIME')
  if t.err then return 0 end
  return t[1] * 1000000 + t[2]
end

-- The lock's value; false when it is free; nil and no error when the key is of another type.
local function holder()
  local v = redis.pcall('GET', K)
  if type(v) == 'table' then
    if string.find(v.err, 'WRONGTYPE', 1, true) then return nil end
    error(v.err)
  end
  return v
end

-- Whether this token holds the lock. An empty one names nobody, though the value of another library may be empty.
local function holds(token)
  return token ~= '' and holder() == token
end

-- The owner record and the time, if it is the one of this token; another library's lease has none.
local function owner(token)
  local fields = redis.call('HGETALL', L)
  local theirs = false
  for i = 1, #fields, 2 do theirs = theirs or fields[i] == 'token' and fields[i + 1] == token end
  if not theirs then return {} end
  fields[#fields + 1] = 'now'
  fields[#fields + 1] = string.format('%.0f', server_us())
  return fields
end

-- How many listen. An error (a missing permission, say) must not make a release look failed, nor a waiter look dead.
local function publish(channel, text)
  local n = redis.pcall('PUBLISH', ARGV[1] .. channel, text)
  if type(n) == 'number' then return n end
  return 1
end

-- Tells whoever is first now to keep watch. Whoever does not listen is dead, and dropped.
local function tell()
  while true do
    local n = redis.call('ZRANGE', Q, 0, 0)[1]
    if not n or publish('w:' .. n, 'head') > 0 then return end
    redis.call('ZREM', Q, n)
  end
end

-- The lock is free and not reserved: calls the first in line that listens, and reserves the lock for it.
-- Returns its id; me, if that is who it is; false when nobody waits.
local function pass(me)
  while true do
    local h = redis.call('ZPOPMIN', Q)[1]
    if not h then return false end
    -- Before the call, and also when it will turn out that h is dead: a server writes first what was published last.
    tell()
    if h == me then return me end
    if publish('w:' .. h, 'go') > 0 then
      redis.call('SET', R, h, 'PX', RESERVED_MS)
      return h
    end
  end
end

-- The lock has just been freed. Never fails: what has been freed must not look as if it were not.
local function hand_over()
  local ok, next = pcall(pass, '')
  if ok and not next then publish('free', 'free') end
end

local function record(token, ttl, fence, host, pid, user, label)
  redis.call('DEL', L, H)
  redis.call('HSET', L, 'token', token, 'fence', fence, 'ttl', ttl, 'since', string.format('%.0f', server_us()),
    'host', host, 'pid', pid, 'user', user, 'label', label)
  redis.call('PEXPIRE', L, ttl)
end

local function set_fence(n)
  local text = string.format('%.0f', n)
  redis.call('SET', F, text, 'PX', FENCE_MS)
  return text
end

-- What is recorded of the lease of this token; nothing of another library's.
local function lease_of(token)
  local lease = redis.call('HMGET', L, 'token', 'ttl', 'fence', 'revoked')
  if lease[1] ~= token then return {} end
  return {ttl = tonumber(lease[2]), fence = lease[3], revoked = lease[4]}
end

-- A place behind all others: the present time, or one more than the last place.
local function behind_all(set)
  local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
  return string.format('%.0f', math.max(server_us(), (tonumber(last) or 0) + 1))
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

-- Until when a hold has made the lease last beyond its ttl: what the release of another hold must not take away. Not
-- worth an error where memory is short.
local function note_end(hold, ttl)
  local known = tonumber(redis.call('HGET', L, 'to:' .. hold)) or 0
  redis.pcall('HSET', L, 'to:' .. hold, string.format('%.0f', math.max(known, server_us() + ttl * 1000)))
end

local function count_holds()
  return math.max(redis.call('ZCARD', H), 1)
end

-- Makes the lease last ttl ms from now, but never shortens it. Returns what it lasts; -1 when it never expires.
local function lengthen(ttl)
  local left = redis.call('PTTL', K)
  if left < 0 or left >= ttl then return left end
  redis.call('PEXPIRE', K, ttl)
  redis.call('PEXPIRE', L, ttl)
  redis.call('PEXPIRE', H, ttl)
  redis.call('PEXPIRE', F, FENCE_MS)
  return ttl
end

-- What a node knows of itself: seconds since its start, and the identity of this run of it. Refused: {'', ''}.
-- A start in the future, by a clock that was set back, counts as now.
local function identity()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return {'', ''} end
  local uptime = string.match(info, 'uptime_in_seconds:(%-?%d+)') or ''
  if string.sub(uptime, 1, 1) == '-' then uptime = '0' end
  return {uptime, string.match(info, 'run_id:(%x+)') or ''}
end

-- Prelude: prepended to every script. The keys of a lock in Redis, and the steps that the scripts share.
-- KEYS: lock (string: token), lease (hash: owner record), fence (string: counter), queue (sorted set: waiter -> ticket),
--       reserved (string: waiter, or token of a holder), holds (sorted set: hold -> age)
-- ARGV: name, value, name, value; read as ARG.name. `base` begins the channels' names, `claim` is the way to have the lock
--       (see fits). The head of a script names its other arguments. An argument that is not given is nil.
-- Answers are name, value, name, value too, and always have an `outcome`. `holders` is a list of such lists: value, left (ms,
-- PTTL), the owner record and now (us); or type and left for a key that is no string. `node` is uptime (s) and run, '' where
-- INFO is refused.
local K, L, F, Q, R, H = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ARG = {}
for i = 1, #ARGV, 2 do ARG[ARGV[i]] = ARGV[i + 1] end

local FENCE_MS = 2592000000 -- the fencing counter outlives its last use by 30 days
local RESERVED_MS = 1000    -- a free lock is kept so long for a waiter that was told, and is perhaps frozen
local QUEUE_MS = 900000     -- a queue that no waiter looks after is forgotten

local value -- the value of the lock's key: a token; false when the lock is free; nil when the key is of another type

-- Reads the value of the lock. The prelude ends with it.
local function first()
  value = redis.pcall('GET', K)
  if type(value) ~= 'table' then return end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
  value = nil
end

-- True if this token has the lock. An empty one never has, though the value of another library may be empty.
local function mine(token)
  return token and token ~= '' and value == token
end

-- True if a lease with this claim may be granted beside those that there are. An exclusive one fits beside none.
local function fits(claim)
  return value == false
end

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

-- Names and values as a list.
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

-- The number of listeners. An error (a missing permission, say) must not make a release look failed, nor a waiter look dead.
local function publish(channel, text)
  local n = redis.pcall('PUBLISH', ARG.base .. channel, text)
  if type(n) == 'number' then return n end
  return 1
end

-- Tells the first in line to keep watch. A waiter that does not listen is dead, and dropped.
local function tell()
  while true do
    local n = redis.call('ZRANGE', Q, 0, 0)[1]
    if not n or publish('w:' .. n, 'head') > 0 then return end
    redis.call('ZREM', Q, n)
  end
end

-- The lock is free and not reserved: calls the first in line that listens, and reserves the lock for it.
-- Returns its id (me, if it is the caller), or false when the line is empty.
local function call(me)
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
  local ok, next = pcall(call)
  if ok and not next then publish('free', 'free') end
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

-- Takes the lease that there is away.
local function drop()
  redis.call('DEL', K, L, H)
  value = false
end

-- Undoes a take. A user who may not delete lets it run out: the take was refused halfway.
local function undo(token)
  if mine(token) and not pcall(drop) then redis.call('PEXPIRE', K, 1) end
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

first()

-- Prelude: prepended to every script. The keys of a lock in Redis, whose it is, and passing it on. A server reads no more than 16 kB
-- from a client that has gone, and what undoes a take has to fit in: the steps that only other scripts need are in lease.lua.
-- KEYS: lock (string: token), lease (hash: owner record), fence (string: counter), queue (sorted set: waiter -> ticket),
--       reserved (string: waiter, or token of a holder), holds (sorted set: hold -> age)
-- ARGV: name, value, name, value; read as ARG.name. `claim` is the way to have the lock (see fits). The head of a script names
--       its other arguments. An argument that is not given is nil.
-- Answers are name, value, name, value too, and always have an `outcome`. `holders` is a list of such lists: value, left (ms,
-- PTTL), the owner record and now (us); or type and left for a key that is no string. `node` is uptime (s) and run, '' where
-- INFO is refused.
local K, L, F, Q, R, H = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ARG = {}
for i = 1, #ARGV, 2 do ARG[ARGV[i]] = ARGV[i + 1] end
local BASE = string.sub(L, 1, -6) -- without 'lease': the names of the channels begin with it

local RESERVED_MS = 1000 -- a free lock is kept so long for a waiter that was told, and is perhaps frozen
local QUEUE_MS = 900000  -- a queue that no waiter looks after is forgotten

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

-- The number of listeners. An error (a missing permission, say) must not make a release look failed, nor a waiter look dead.
local function publish(channel, text)
  local n = redis.pcall('PUBLISH', BASE .. channel, text)
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

-- Takes the lease that there is away.
local function drop()
  redis.call('DEL', K, L, H)
  value = false
end

-- Undoes a take. A user who may not delete lets it run out: the take was refused halfway.
local function undo(token)
  if mine(token) and not pcall(drop) then redis.call('PEXPIRE', K, 1) end
end

first()

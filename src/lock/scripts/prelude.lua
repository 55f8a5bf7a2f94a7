-- Prelude: prepended to every script. The keys of a lock in Redis, and whose it is. A server reads no more than 16 kB from a
-- client that has gone, and what undoes a take has to fit in: what undo.lua does not need is in lease.lua.
-- KEYS: lock (string: token, or a mark), lease (hash: owner record), fence (string: counter), queue (sorted set: waiter -> ticket in us),
--       reserved (string: waiter, or token of a holder), holds (sorted set: hold -> age),
--       members (sorted set: token -> deadline in ms), places (sorted set: token -> place), fences (hash: place -> counter, all)
-- A lock that several hold bears a mark, `shared.` or `slots:L.` and a nonce: no other program takes that for its own token. Then
-- members lists the leases, `member:TOKEN` is the record of each, and lease has the field `longest`, their longest ttl, and `swept` when some have run out.
-- ARGV: name, value, name, value; read as ARG.name. `claim` is the way to have the lock (see fits), nil for a command that takes
--       none. The head of a script names its other arguments. An argument that is not given is nil.
-- Answers are name, value, name, value too, and always have an `outcome`, and `unlogged` where it is set. `holders` is a list of such lists: value, left (ms,
-- PTTL), the owner record and now (us), of a member its claim and slot; or type and left for a key that is no string. With members
-- there are `members` (their number), `next` (ms, until one of them runs out) and `longest`. `node` is uptime (s) and run, ''
-- where INFO is refused.
local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
local ARG = {}
for i = 1, #ARGV, 2 do ARG[ARGV[i]] = ARGV[i + 1] end
local BASE = string.sub(L, 1, -6) -- without 'lease': the names of the channels begin with it
local OPEN = BASE .. 'log:open'       -- see journal.lua

local QUEUE_MS = 900000  -- a queue that no waiter looks after is forgotten

local value = redis.pcall('GET', K) -- a token or a mark; false when the lock is free; nil when the key is of another type
local shape -- of a mark: the claim of its members
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
  value = nil
elseif value and string.sub(value, 1, 1) == 's' then
  local nonce = '%.' .. string.rep('%x', 16) .. '$'
  shape = string.match(value, '^(shared)' .. nonce) or string.match(value, '^(slots:%d+)' .. nonce)
end
local us    -- the server's clock
local unlogged -- the error that has kept a run out of the log, if any

-- Large numbers in full: Lua writes 15 digits at most.
local function digits(n)
  return string.format('%.0f', n)
end

-- The server's clock; 0 where it is refused: no exclusive lock depends on it. The same to the end of the script.
local function server_us()
  if not us then
    local t = redis.pcall('TIME')
    us = t.err and 0 or t[1] * 1000000 + t[2]
  end
  return us
end

local function server_ms()
  return math.floor(server_us() / 1000)
end

-- True if this token has the lock. An empty one never has, though the value of another library may be empty.
local function mine(token)
  if not token or token == '' then return false end
  if not shape then return value == token end
  return redis.call('ZSCORE', M, token) ~= false
end

-- The members have changed: the keys last as long as the last of them.
local function settle()
  local last = redis.call('ZRANGE', M, -1, -1, 'WITHSCORES')[2]
  if last then
    for _, key in ipairs({K, L, M, P}) do redis.call('PEXPIREAT', key, last) end
  else
    redis.call('DEL', K, L, M, P)
    value, shape = false, nil
  end
end

local function forget(member)
  redis.call('ZREM', M, member)
  redis.call('ZREM', P, member)
  redis.call('DEL', BASE .. 'member:' .. member)
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
  fields.outcome, fields.unlogged = outcome, unlogged
  return flat(fields)
end

-- Takes the lease of this token away, which is there.
local function drop(token)
  if shape then
    forget(token)
    return settle()
  end
  redis.call('DEL', K, L, H)
  value = false
end

-- Undoes a take. A user who may not delete lets it run out: the take was refused halfway.
local function undo(token)
  if mine(token) and not pcall(drop, token) then redis.call('PEXPIRE', K, 1) end
  redis.pcall('HDEL', OPEN, token or '')
end

-- Drops the members that have run out, at the head of every script. Calls no waiter, since one with an old ticket would be passed
-- over, and no command that an exclusive lock does not need.
if shape then
  local over = redis.call('ZRANGE', M, '-inf', digits(server_ms()), 'BYSCORE')
  for _, member in ipairs(over) do forget(member) end
  if #over > 0 then redis.call('HSET', L, 'swept', 1) end -- for the log, which the next grant looks after
  if redis.call('EXISTS', M) == 0 then settle() end
end

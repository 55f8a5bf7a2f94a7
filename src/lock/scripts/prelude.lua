-- Prelude: prepended to every script. The keys of a lock in Redis, and who has it. A server reads no more than 16 kB
-- from a client that has gone, and what undoes a take has to fit in that: what undo.lua does not need is in other
-- files.
-- KEYS: lock (string: token, or a mark), lease (hash: owner record), fence (string: counter),
--       queue (sorted set: waiter -> ticket in us), reserved (string: waiter, or token of a holder),
--       holds (sorted set: hold -> age), members (sorted set: token -> deadline in ms),
--       places (sorted set: token -> place), fences (hash: place -> counter, all)
-- A lock that several hold bears a mark, `shared.` or `slots:L.` and a nonce: no other program takes that for its own
-- token. Then members lists the leases, `member:TOKEN` is the record of each, and lease has the fields `longest`, their
-- longest ttl, `revoked` (when in us, and by whom: all members that were granted before), and `some_kept` when a member
-- is kept though its job has ended. A script does its whole work: 5 ms at most for 1,000 of anything, and grows no faster
-- than they do.
-- ARGV: name, value, name, value; read as ARG.name. `claim` is the way to have the lock (see fits), nil for a command
--       that takes none. The head of a script names its other arguments. An argument that is not given is nil.
-- Answers are name, value, name, value too, and always have an `outcome`. `holders` is a list of such lists: value, left (ms, PTTL), the owner record and now (us), of a member its claim and slot; or type
-- and left for a key that is no string. With members there are `members` (their number), `next` (ms, until one of them
-- runs out) and `longest`. `node` is uptime (s) and run_id, '' where INFO is refused.
-- What scripts spend is the creation of their functions, and numbers that become texts: so what is rarely needed stands
-- behind a return or inside a function, and what is often called has texts for constants and for the clock. All behind
-- the prelude stands inside one function (scripts.rs), as the names around a function cost nothing to find.
local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
local ARG, given = {}, ARGV
for i = 1, #given, 2 do ARG[given[i]] = given[i + 1] end
local BASE = string.sub(L, 1, -6) -- without 'lease': the names of the channels begin with it
local OPEN, ENDS = BASE .. 'open', BASE .. 'ends' -- see run.lua

-- A queue that no waiter looks after is forgotten; the fencing counters and the memory outlive their last use by 100
-- days.
local QUEUE_MS, FENCE_MS = '900000', '8640000000'

-- The state of a call, all that changes under the helpers:
-- the value of the lock, a token or a mark: false when it is free, nil when the key is of another type;
local value = redis.pcall('GET', K)
-- of a mark the claim of its members, nil once they are gone;
local shape
-- the server's clock, and the field `revoked` of L, once they were read;
local us, revoked_all

if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
  value = nil
elseif value and string.sub(value, 1, 1) == 's' then
  local nonce = '%.' .. string.rep('%x', 16) .. '$'
  shape = string.match(value, '^(shared)' .. nonce) or string.match(value, '^(slots:%d+)' .. nonce)
end

-- Large numbers in full: Lua writes 15 digits at most.
local function digits(n)
  return string.format('%.0f', n)
end

-- The server's clock, as a text; zero where it is refused: no exclusive lock depends on it. The same to the end of the
-- script.
local function server_us()
  if not us then
    local t = redis.pcall('TIME')
    us = t.err and '0000' or t[1] .. string.rep('0', 6 - #t[2]) .. t[2]
  end
  return us
end

-- The same in ms, as a number.
local function server_ms()
  return math.floor(server_us() / 1000)
end

-- True if this token has the lock. An empty one never has, though the value of another library may be empty.
local function is_held_by(token)
  if not token or token == '' then return false end
  if not shape then return value == token end
  return redis.call('ZSCORE', M, token) ~= false
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

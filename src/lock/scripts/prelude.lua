-- Prelude: prepended to every script. The keys of a lock in Redis, and whose it is. A server reads no more than 16 kB from a
-- client that has gone, and what undoes a take has to fit in: what undo.lua does not need is in lease.lua.
-- KEYS: lock (string: token, or a mark), lease (hash: owner record), fence (string: counter), queue (sorted set: waiter -> ticket in us),
--       reserved (string: waiter, or token of a holder), holds (sorted set: hold -> age),
--       members (sorted set: token -> deadline in ms), places (sorted set: token -> place), fences (hash: place -> counter, all)
-- A lock that several hold bears a mark, `shared.` or `slots:L.` and a nonce: no other program takes that for its own token. Then
-- members lists the leases, `member:TOKEN` is the record of each, and lease has the fields `longest`, their longest ttl,
-- `revoked` (when in us, and by whom: all members that were granted before), and `some_kept` when a member is kept
-- though its job has ended. No script takes longer than 5 ms, however many there are of anything.
-- ARGV: name, value, name, value; read as ARG.name. `claim` is the way to have the lock (see fits), nil for a command that takes
--       none. The head of a script names its other arguments. An argument that is not given is nil.
-- Answers are name, value, name, value too, and always have an `outcome`, and `more` where it is set. `holders` is a list of such lists: value, left (ms,
-- PTTL), the owner record and now (us), of a member its claim and slot; or type and left for a key that is no string. With members
-- there are `members` (their number), `next` (ms, until one of them runs out) and `longest`. `node` is uptime (s) and run, ''
-- where INFO is refused.
local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
local ARG = {}
for i = 1, #ARGV, 2 do ARG[ARGV[i]] = ARGV[i + 1] end
local BASE = string.sub(L, 1, -6) -- without 'lease': the names of the channels begin with it
local OPEN, ENDS = BASE .. 'open', BASE .. 'ends' -- see journal.lua

local QUEUE_MS = 900000  -- a queue that no waiter looks after is forgotten
local SWEPT = 100        -- no script forgets more members that have run out

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
local unswept -- more members may have run out
local more    -- the line has not been passed on to its end: leave.lua without arguments goes on

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

-- True if this token has the lock. An empty one never has, though the value of another library may be empty. A member that has run
-- out has nothing, but as long as it is listed its place is taken.
local function mine(token)
  if not token or token == '' then return false end
  if not shape then return value == token end
  return (tonumber(redis.call('ZSCORE', M, token)) or 0) > server_ms()
end

-- Deletes the mark and all beside it; long lists in the background, where the user may.
local function delete_mark()
  local done = redis.call('ZCARD', M) > 1000 and redis.pcall('UNLINK', K, L, M, P)
  if type(done) ~= 'number' then redis.call('DEL', K, L, M, P) end
  value, shape = false, nil
end

-- The latest deadline of the members, if it lies ahead. Otherwise the mark goes with all beside it, and is none for the rest of the
-- script.
local function last_deadline()
  local last = redis.call('ZRANGE', M, -1, -1, 'WITHSCORES')[2]
  if last and tonumber(last) > server_ms() then return last end
  delete_mark()
end

-- The members have changed: the keys last as long as the last of them, and may be gone at once, as the clock goes on.
local function settle()
  local last = last_deadline()
  if not last then return end
  for _, key in ipairs({K, L, M, P}) do redis.call('PEXPIREAT', key, last) end
  if redis.call('EXISTS', K) == 0 then value, shape = false, nil end
end

-- Takes members out of the lists.
local function forget(members)
  local records = {}
  for i, member in ipairs(members) do records[i] = BASE .. 'member:' .. member end
  redis.call('ZREM', M, unpack(members))
  redis.call('ZREM', P, unpack(members))
  redis.call('DEL', unpack(records))
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
  fields.outcome, fields.more = outcome, more
  return flat(fields)
end

-- Takes the lease of this token away, which is there.
local function drop(token)
  if shape then
    forget({token})
    return settle()
  end
  redis.call('DEL', K, L, H)
  value = false
end

-- Undoes a take; true if it had been granted. A user who may not delete lets it run out: the take was refused halfway. (Of members
-- that is out of the list.)
local function undo(token)
  local granted = mine(token)
  if granted and not pcall(drop, token) and not shape then redis.call('PEXPIRE', K, 1) end
  redis.pcall('HDEL', OPEN, token or '')
  redis.pcall('ZREM', ENDS, token or '')
  return granted
end

-- Undoes the tries in ARG.earlier, which this node has not confirmed to have undone; true if one had been granted.
local function undo_earlier()
  local granted = false
  for token in string.gmatch(ARG.earlier or '', '%S+') do granted = undo(token) or granted end
  return granted
end

-- Forgets members that have run out, at the head of every script. Calls no waiter, since one with an old ticket would be passed
-- over, and no command that an exclusive lock does not need.
if shape then
  local over = redis.call('ZRANGE', M, '-inf', digits(server_ms()), 'BYSCORE', 'LIMIT', 0, SWEPT)
  unswept = #over == SWEPT
  if #over > 0 then forget(over) end
  last_deadline()
end

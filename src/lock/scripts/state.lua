-- Finds out who holds the lock, forgets members whose lease has run out, and makes answers. take.lua and release.lua
-- leave out this file in the plain case. After its last lines, M has only leases that still last by the server's clock.

-- claim: 'shared' or 'slots:L' if members hold the lock, as the mark in K says; nil if none does.
-- revoked_all: the field `revoked` of L; nil until revoked_by in lease.lua has read the field.
local claim, revoked_all
local now = tonumber(ms)
-- The most arguments for one command: Lua's stack ends at some 8,000.
local UNPACKED = 1000

if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
  value = nil
elseif value and string.sub(value, 1, 1) == 's' then
  local nonce = '%.' .. string.rep('%x', 16) .. '$'
  claim = string.match(value, '^(shared)' .. nonce) or string.match(value, '^(slots:%d+)' .. nonce)
end

-- A number as text, with all its digits: Lua's own conversion writes 14 digits at most.
local function digits(n)
  return string.format('%.0f', n)
end

-- True if the lease of this token holds the lock. An empty token never does, although another library's may be empty.
local function is_held_by(token)
  if not token or token == '' then return false end
  if not claim then return value == token end
  return redis.call('ZSCORE', M, token) ~= false
end

-- The fields as a list: name, value, name, value. A field whose value is false is left out.
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

-- The functions on members, which a script creates only if members hold the lock, or ARG.claim is shared or slots:L.
local members = {}

if claim or ARG.claim and ARG.claim ~= 'exclusive' then
  -- Sets the expiry of K, L, M and P to the latest deadline of a member. (If it has passed by now, PEXPIREAT deletes
  -- the keys.) If no member is left, deletes these keys. If K is deleted, the lock is free for the rest of the script:
  -- `value` and `claim` say so.
  function members.expire_all()
    local last = redis.call('ZRANGE', M, -1, -1, 'WITHSCORES')[2]
    if last then
      for _, key in ipairs({K, L, M, P}) do redis.call('PEXPIREAT', key, last) end
    else
      redis.call('DEL', K, L, M, P)
    end
    if not last or redis.call('EXISTS', K) == 0 then value, claim = false, nil end
  end

  -- Makes a member's lease last ttl ms from now, and its record a second longer. L notes the longest ttl of all
  -- members, because a quarantine must last at least as long. PEXPIREAT comes first: a server out of memory may refuse
  -- a script's first write, but never PEXPIREAT. After PEXPIREAT, it does not refuse ZADD and HSET.
  function members.expire(token, ttl)
    redis.call('PEXPIREAT', BASE .. 'member:' .. token, digits(now + ttl + 1000))
    redis.call('ZADD', M, digits(now + ttl), token)
    redis.call('HSET', L, 'longest', digits(math.max(ttl, tonumber(redis.call('HGET', L, 'longest')) or 0)))
    members.expire_all()
  end

  function members.forget(tokens)
    for first = 1, #tokens, UNPACKED do
      local last, records = math.min(first + UNPACKED - 1, #tokens), {}
      for i = first, last do records[#records + 1] = BASE .. 'member:' .. tokens[i] end
      redis.call('ZREM', M, unpack(tokens, first, last))
      redis.call('ZREM', P, unpack(tokens, first, last))
      redis.call('DEL', unpack(records))
    end
  end
end

-- Forgets members whose lease has run out, but calls no waiter. The client of this request may be a waiter that was
-- frozen when an earlier script called it. Such a waiter is no longer in line, but has an older ticket than the first
-- in line, and goes first.
if claim then
  members.forget(redis.call('ZRANGE', M, '-inf', ms, 'BYSCORE'))
  if redis.call('EXISTS', M) == 0 then members.expire_all() end
end

-- For all but the plain case: finds out who has the lock, lists members, and makes answers. The end of this file
-- forgets the members that have run out, so each member that is left is alive by this script's clock.

-- claim: the claim in the lock's mark; nil without a mark, or once all members are gone.
-- revoked_all: the field `revoked` of L, once it was read.
local claim, revoked_all
local now = tonumber(ms)
local UNPACKED = 1000 -- the most arguments for one command: Lua's stack ends at some 8,000

if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err) end
  value = nil -- a key of another type
elseif value and string.sub(value, 1, 1) == 's' then
  local nonce = '%.' .. string.rep('%x', 16) .. '$'
  claim = string.match(value, '^(shared)' .. nonce) or string.match(value, '^(slots:%d+)' .. nonce)
end

-- Writes large numbers in full: Lua writes 14 digits at most.
local function digits(n)
  return string.format('%.0f', n)
end

-- True if this token has the lock. An empty token never has it, although another library's value may be empty.
local function is_held_by(token)
  if not token or token == '' then return false end
  if not claim then return value == token end
  return redis.call('ZSCORE', M, token) ~= false
end

-- These fields as a list of names and values; a field that is false is left out.
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

-- The functions on members. A script creates them only if the lock has members, or ARG.claim is shared or slots.
local members = {}

if claim or ARG.claim and ARG.claim ~= 'exclusive' then
  -- Sets the expiry of K, L, M and P to the latest deadline of a member. (If that time has passed meanwhile, PEXPIREAT
  -- deletes the keys.) If no member is left, deletes these keys. Without K the lock is free for the rest of the script.
  function members.expire_all()
    local last = redis.call('ZRANGE', M, -1, -1, 'WITHSCORES')[2]
    if last then
      for _, key in ipairs({K, L, M, P}) do redis.call('PEXPIREAT', key, last) end
    else
      redis.call('DEL', K, L, M, P)
    end
    if not last or redis.call('EXISTS', K) == 0 then value, claim = false, nil end
  end

  -- Makes one member last ttl ms from now, and the member's record a little longer. Notes the longest ttl: a quarantine
  -- must last at least as long. A member that `is_kept` after its job does not count for that. PEXPIREAT comes first: a
  -- server out of memory may refuse the first write of a script, but never PEXPIREAT. After PEXPIREAT, the server does
  -- not refuse ZADD and HSET.
  function members.expire(token, ttl, is_kept)
    redis.call('PEXPIREAT', BASE .. 'member:' .. token, digits(now + ttl + 1000))
    redis.call('ZADD', M, digits(now + ttl), token)
    if not is_kept then
      redis.call('HSET', L, 'longest', digits(math.max(ttl, tonumber(redis.call('HGET', L, 'longest')) or 0)))
    end
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

-- Forgets members that have run out, but calls no waiter. This request may come from a waiter that was frozen when it
-- was called. Such a waiter is no longer in line, but has an older ticket than the first in line, and goes first.
if claim then
  members.forget(redis.call('ZRANGE', M, '-inf', ms, 'BYSCORE'))
  if redis.call('EXISTS', M) == 0 then members.expire_all() end
end

-- needs state
-- What takes, frees or leaves the lock: how a lease is taken away, who fits, and who is next.
-- Cost: hand_over one call where nobody waits, else 7: EXISTS, ZRANGE, ZPOPMIN, PUBLISH, SET, and of the second ZRANGE,
-- PUBLISH.
local RESERVED_MS = 1000 -- a free lock is kept so long for a waiter that was told, and is perhaps frozen

-- Takes the lease of this token away, which is there.
local function drop(token)
  if claim then
    members.forget({token})
    return members.expire_all()
  end
  redis.call('DEL', K, L, H)
  value = false
end

-- Undoes a take; true if it had been granted. A user who may not delete lets it run out: the take was refused halfway.
local function undo(token)
  local granted = is_held_by(token)
  if granted and not pcall(drop, token) and not claim then redis.call('PEXPIRE', K, 1) end
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

-- True if a lease with this claim may be granted beside those that there are.
local function fits(asked)
  if not claim then return value == false end
  return asked == claim and (claim == 'shared' or redis.call('ZCARD', P) < tonumber(string.sub(claim, 7)))
end

-- Calls the first in line that listens, if it fits, and reserves the lock for it; otherwise tells it to keep watch.
-- Does no more than that either while another is called: that call would be overwritten. Returns its id (me, if it is
-- the caller), false when the line is empty, nil when the first is not called.
local function call_next(me)
  -- The claim of a waiter, by the first letter of its name. One for slots fits if any slot is free; if it asks for
  -- another number of slots, its take is refused.
  local function claim_of(waiter)
    local initial = string.sub(waiter, 1, 1)
    return initial == 's' and 'shared' or initial == 'p' and claim ~= 'shared' and claim or 'exclusive'
  end

  -- True if the waiter listens; else it is dead, and dropped. An error (a missing permission, say) must not make it
  -- look dead.
  local function tell(waiter, text)
    if redis.pcall('PUBLISH', BASE .. 'w:' .. waiter, text) ~= 0 then return true end
    redis.call('ZREM', Q, waiter)
  end

  -- Tells the first in line to keep watch.
  local function tell_first()
    local waiter
    repeat waiter = redis.call('ZRANGE', Q, 0, 0)[1] until not waiter or tell(waiter, 'head')
  end

  if redis.call('EXISTS', R) == 1 then return tell_first() end
  while true do
    local first = redis.call('ZRANGE', Q, 0, 0)[1]
    if not first then return false end
    if first ~= me and not fits(claim_of(first)) then
      if tell(first, 'head') then return nil end
    else
      redis.call('ZPOPMIN', Q)
      -- Before the call, and also when it will turn out that the first is dead: a server writes first what was
      -- published last.
      tell_first()
      if first == me then return me end
      if tell(first, 'go') then
        redis.call('SET', R, first, 'PX', RESERVED_MS)
        return first
      end
    end
  end
end

-- A lease has just ended, or one was granted that others fit beside. Never fails: what has been freed must not look as
-- if it were not.
local function hand_over()
  if redis.pcall('EXISTS', Q) ~= 0 then pcall(call_next) end
end

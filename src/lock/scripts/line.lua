-- needs state
-- Functions for scripts that take, free or leave the lock: delete a lease, see which claim fits, call the next.
-- Cost: hand_over makes 1 call if the line is empty, else usually 7: EXISTS of Q and R, ZRANGE, ZPOPMIN, ZRANGE,
-- PUBLISH, SET; and one more PUBLISH if there is a second in line.
local RESERVED_MS = 1000 -- how long a free lock is kept for a waiter that was called, and may be frozen

-- Deletes the lease of this token, which has the lock.
local function drop(token)
  if claim then
    members.forget({token})
    return members.expire_all()
  end
  redis.call('DEL', K, L, H)
  value = false
end

-- Undoes a take; true if the take had been granted. If the user may not run DEL, the take wrote K and then failed, and
-- this function cannot delete K either: K then expires at once.
local function undo(token)
  local granted = is_held_by(token)
  if granted and not pcall(drop, token) and not claim then redis.call('PEXPIRE', K, 1) end
  redis.pcall('HDEL', OPEN, token or '')
  redis.pcall('ZREM', ENDS, token or '')
  return granted
end

-- Undoes the tries in ARG.earlier; true if any had been granted.
local function undo_earlier()
  local granted = false
  for token in string.gmatch(ARG.earlier or '', '%S+') do granted = undo(token) or granted end
  return granted
end

-- True if a lease with this claim may be granted beside the present leases.
local function fits(asked)
  if not claim then return value == false end
  return asked == claim and (claim == 'shared' or redis.call('ZCARD', P) < tonumber(string.sub(claim, 7)))
end

-- Calls the first in line that listens, and reserves the lock for this waiter. If the first does not fit, or the lock
-- is reserved already (a new reservation would overwrite the old one), only tells the first to keep watch, and returns
-- nil. Else returns the name of the called waiter, or false if the line is empty. If the first is `me`, the caller
-- itself, takes `me` out of the line and returns `me`, without a call and a reservation.
local function call_next(me)
  -- The claim by which `fits` judges a waiter, from the first letter of the waiter's name. The letter of a slot does
  -- not tell the number of slots, so a waiter for a slot counts as asking for the present number. A waiter that asks
  -- for another number is called too, and its take is refused.
  local function claim_of(waiter)
    local initial = string.sub(waiter, 1, 1)
    return initial == 's' and 'shared' or initial == 'p' and claim ~= 'shared' and claim or 'exclusive'
  end

  -- Sends the waiter this text; true if the waiter listens, or if PUBLISH fails (for lack of a permission, say). A
  -- waiter that does not listen is dead, and is dropped.
  local function tell(waiter, text)
    if redis.pcall('PUBLISH', BASE .. 'w:' .. waiter, text) ~= 0 then return true end
    redis.call('ZREM', Q, waiter)
  end

  -- Sends `head` (keep watch) to the first waiter that listens. Drops the waiters in front of that waiter.
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
      -- A server sends the later of a script's two messages first, and the call must arrive first. So the second in
      -- line is told before the first is called, even if the first turns out to be dead.
      tell_first()
      if first == me then return me end
      if tell(first, 'go') then
        redis.call('SET', R, first, 'PX', RESERVED_MS)
        return first
      end
    end
  end
end

-- Calls the next in line when a lease has ended, a waiter has left the line, or a lease was granted that others fit
-- beside. Never fails: else the client would get an error for a release or a grant that the script has carried out.
local function hand_over()
  if redis.pcall('EXISTS', Q) ~= 0 then pcall(call_next) end
end

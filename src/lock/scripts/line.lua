-- needs state, forget
-- Functions for scripts that take, free or leave the lock: they delete a lease, see which claim fits, call a waiter.
-- Cost: hand_over makes 1 call if the line is empty, else usually 7 (EXISTS of Q and R, ZRANGE, ZPOPMIN, ZRANGE,
-- PUBLISH, SET). If there is a second waiter in line, one more PUBLISH follows.
-- How long a free lock is kept for a waiter that was called, and may be frozen.
local RESERVED_MS = 1000

-- Deletes the lease of this token, which must hold the lock.
local function drop(token)
  if claim then
    members.forget({token})
    return members.expire_all()
  end
  redis.call('DEL', K, L, H)
  value = false
end

-- Undoes the take with this token (nil: no take). True if this node had granted it. If the user has no right to DEL, K
-- is not deleted, but expires at once. (The take of such a user wrote K, and failed later.)
local function undo(token)
  local granted = is_held_by(token)
  if granted and not pcall(drop, token) and not claim then redis.call('PEXPIRE', K, 1) end
  if token then pcall(forget_run, token) end
  return granted
end

-- Undoes the caller's earlier tries (ARG.earlier; nil: none). True if this node had granted any of them.
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

-- Calls the first waiter in line that listens, and reserves the lock for it. `me`: the waiter whose take the script
-- carries out; nil: no waiter. Returns
-- the name of the called waiter;
-- `me` if it is the first in line: it leaves the line, gets no call, and needs no reservation;
-- false if the line is empty;
-- nil if the first waiter does not fit, or the lock is reserved already. The first waiter is then only sent `head`. (A
-- second reservation would overwrite the present one.)
local function call_next(me)
  -- The claim of a waiter, for `fits`. The first letter of its name stands for the claim: `s` is shared, `p` is a slot,
  -- any other letter is exclusive. The name does not have the number of slots, so the script assumes that of the
  -- present leases. A waiter that wants another number is called all the same, and its take is refused.
  local function claim_of(waiter)
    local initial = string.sub(waiter, 1, 1)
    return initial == 's' and 'shared' or initial == 'p' and claim ~= 'shared' and claim or 'exclusive'
  end

  -- Sends the waiter this text. True if it listens, or if PUBLISH fails (for lack of a permission, say). A waiter that
  -- does not listen is dead: drops it from the line, and returns nil.
  local function tell(waiter, text)
    if redis.pcall('PUBLISH', BASE .. 'w:' .. waiter, text) ~= 0 then return true end
    redis.call('ZREM', Q, waiter)
  end

  -- Sends `head` (keep watch) to the first waiter that listens, and drops the dead waiters in front of it.
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
      -- `go` must arrive before the next waiter's `head`, but a server sends the messages of a script in reverse order.
      -- So the second waiter in line is sent `head` before the first is called. (The first may turn out to be dead.)
      tell_first()
      if first == me then return me end
      if tell(first, 'go') then
        redis.call('SET', R, first, 'PX', RESERVED_MS)
        return first
      end
    end
  end
end

-- Calls the next waiter in line: after the end of a lease, after a waiter has left the line, and after the grant of a
-- lease beside which others fit. Never fails: an error would reach the client, though the release or the grant is done.
local function hand_over()
  if redis.pcall('EXISTS', Q) ~= 0 then pcall(call_next) end
end

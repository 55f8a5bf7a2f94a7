-- Stands behind the prelude in all scripts: what fits, and passing it on.
local RESERVED_MS = 1000 -- a free lock is kept so long for a waiter that was told, and is perhaps frozen
local BURIED = 500       -- no script drops more waiters that do not listen

-- True if a lease with this claim may be granted beside those that there are.
local function fits(claim)
  if not shape then return value == false end
  return claim == shape and (shape == 'shared' or redis.call('ZCARD', P) < tonumber(string.sub(shape, 7)))
end

-- The claim of a waiter, which its name begins with. One for slots fits if any place is free: of another number it will be told.
local function claim_of(waiter)
  local initial = string.sub(waiter, 1, 1)
  return initial == 's' and 'shared' or initial == 'p' and shape ~= 'shared' and shape or 'exclusive'
end

-- The number of listeners. An error (a missing permission, say) must not make a release look failed, nor a waiter look dead.
local function publish(channel, text)
  local n = redis.pcall('PUBLISH', BASE .. channel, text)
  if type(n) == 'number' then return n end
  return 1
end

-- Drops a waiter that does not listen: it is dead.
local buried = 0
local function bury(waiter)
  redis.call('ZREM', Q, waiter)
  buried = buried + 1
  if buried == BURIED then more = 1 end
end

-- Tells the first in line to keep watch.
local function tell()
  while not more do
    local n = redis.call('ZRANGE', Q, 0, 0)[1]
    if not n or publish('w:' .. n, 'head') > 0 then return end
    bury(n)
  end
end

-- The lock is not reserved: calls the first in line that listens, if it fits, and reserves the lock for it; otherwise tells it to
-- keep watch. Returns its id (me, if it is the caller), false when the line is empty, nil when the first does not fit or there is
-- `more` to do.
local function call(me)
  while not more do
    local h = redis.call('ZRANGE', Q, 0, 0)[1]
    if not h then return false end
    if h ~= me and not fits(claim_of(h)) then
      if publish('w:' .. h, 'head') > 0 then return nil end
      bury(h)
    else
      redis.call('ZPOPMIN', Q)
      -- Before the call, and also when it will turn out that h is dead: a server writes first what was published last.
      tell()
      if h == me then return me end
      if publish('w:' .. h, 'go') > 0 then
        redis.call('SET', R, h, 'PX', RESERVED_MS)
        return h
      end
      bury(h)
    end
  end
end

-- A lease has just ended, or one was granted that others fit beside. Never fails: what has been freed must not look as if it were
-- not. While one waiter is called, no other is: its call would be overwritten.
local function hand_over()
  pcall(function()
    if redis.call('EXISTS', R) == 1 then return tell() end
    call()
  end)
end

-- Closes the lock: until it opens, take.lua grants nothing. Leases, the line and reservations stay as they are.
-- ARG: ttl (ms until the lock opens by itself; nil: opens it now, and calls the next waiter), by (user@host of the
--      caller)
-- Answers: done (held: given if somebody holds a lease here, opened: given if the lock was closed)
-- Cost: 3 calls.
-- include line
local CLOSED = BASE .. 'closed'
local opened
if ARG.ttl then
  redis.call('SET', CLOSED, ARG.by, 'PX', ARG.ttl)
else
  opened = redis.call('DEL', CLOSED) == 1 and 1
  hand_over()
end
return answer('done', {held = value and 1, opened = opened})

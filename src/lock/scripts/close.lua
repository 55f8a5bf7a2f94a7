-- Closes the lock: until it opens, take.lua grants nothing. Leases, the line and reservations stay as they are.
-- ARG: ttl (ms until the lock opens by itself; nil: opens it now, and calls the next waiter), by (user@host of the
--      caller)
-- Answers: done (held: given if somebody holds a lease here)
-- Cost: 3 calls.
-- include line
local CLOSED = BASE .. 'closed'
if ARG.ttl then
  redis.call('SET', CLOSED, ARG.by, 'PX', ARG.ttl)
else
  redis.call('DEL', CLOSED)
  hand_over()
end
return answer('done', {held = value and 1})

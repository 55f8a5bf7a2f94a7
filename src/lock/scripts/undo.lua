-- Undoes a take that may have been granted. If the waiter stays in line, it keeps its ticket, and the script calls
-- nobody: another waiter, too, would get only some of the nodes. If the waiter leaves, it loses its position in line
-- and its reservation, and the script calls the next waiter. Without arguments the script only calls the first in line.
-- A repeated or late request does no harm: a waiter that has left never uses its name again.
-- ARG: token, waiter, stay (given if the waiter stays in line),
--      ticket (of a waiter that stays; nil: the waiter knows no ticket),
--      earlier (of a waiter that leaves; see take.lua)
-- Answers: done
-- Cost: 6 calls.
-- include line
local granted = undo(ARG.token)
if not ARG.stay then
  undo_earlier()
  if ARG.waiter then
    redis.call('ZREM', Q, ARG.waiter)
    if redis.call('GET', R) == ARG.waiter then redis.call('DEL', R) end
  end
  hand_over()
elseif granted and ARG.waiter and ARG.ticket then
  -- If the take was not granted, the waiter is not put back into the line: the waiter may have been called, or may have
  -- the lock by now.
  redis.call('ZADD', Q, 'NX', ARG.ticket, ARG.waiter)
  redis.call('PEXPIRE', Q, QUEUE_MS)
end
return answer('done')

-- Undoes a take that may have been granted. A waiter that stays in line keeps its ticket. Then no other waiter is
-- called: like this waiter, it would get only some of the nodes. A waiter that leaves loses its position in line and
-- its reservation, and the next is called. Without arguments the script only calls the first in line. A request may be
-- repeated, and may be late: a waiter that has left never uses its name again.
-- ARG: token, waiter, stay (in line), ticket (of a waiter that stays; nil: the waiter knows no ticket)
--      earlier (see take.lua; of a waiter that leaves)
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
  -- Without a grant, the waiter is not put back into the line: it may have been called, or may have the lock by now.
  redis.call('ZADD', Q, 'NX', ARG.ticket, ARG.waiter)
  redis.call('PEXPIRE', Q, QUEUE_MS)
end
return answer('done')

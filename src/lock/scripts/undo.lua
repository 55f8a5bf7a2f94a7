-- Undoes a take that may have been granted. A waiter that stays in line keeps its ticket, and no other waiter is
-- called: that waiter would get only a part of the nodes too. A waiter that leaves loses its position in line and its
-- reservation, and the next is called. Without arguments the script only calls the first in line. The script may be
-- repeated, and come late, since a waiter that has left never uses its name again.
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
  -- A waiter with no grant to undo is not put back into the line: the waiter may have been called, or have the lock.
  redis.call('ZADD', Q, 'NX', ARG.ticket, ARG.waiter)
  redis.call('PEXPIRE', Q, QUEUE_MS)
end
return answer('done')

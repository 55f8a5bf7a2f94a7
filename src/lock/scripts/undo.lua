-- Undoes a take that this node may have granted. Without arguments, only calls the first waiter in line. A waiter that
-- stays in line keeps its ticket, and nobody is called: a called waiter would get only some of the nodes, too. A waiter
-- that leaves the line loses its ticket and its reservation, and the next waiter is called. A copy of the request may
-- arrive late, and does no harm: a waiter that has left never uses its name again.
-- ARG: token (of the take; nil: no take), waiter (the name in line; nil: the client does not wait),
--      stay (given if the waiter stays in line), ticket (of a waiter that stays; nil: the waiter knows no ticket),
--      earlier (tokens of earlier tries to undo, see take.lua; ignored with `stay`), tries (given if they may count for
--      --tries)
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
  -- The grant took the waiter out of the line, so it gets its old ticket back. If this node had not granted the take,
  -- nobody is added to the line: by now the waiter may have been called, or may hold the lock.
  redis.call('ZADD', Q, 'NX', ARG.ticket, ARG.waiter)
  redis.call('PEXPIRE', Q, QUEUE_MS)
end
return answer('done')

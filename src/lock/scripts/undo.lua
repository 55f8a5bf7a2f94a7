-- Undoes a take that may have been granted. A waiter that stays in line keeps its ticket, and calls no other, which
-- would only get a part too. A waiter that leaves goes out of the line, and passes on the lock if it was promised to
-- it. With no arguments the script calls the first in line. The script may be repeated, and come late, if a waiter
-- that has left uses another name from then on.
-- ARG: waiter, token, stay, ticket (of one that stays; nil: not known, so the one that the server gave is lost)
--      earlier (of one that leaves: tokens of tries that this node has not confirmed to have undone, between spaces)
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
  -- If there is nothing to undo, the line is not touched: the waiter may have been called since, or have the lock.
  redis.call('ZADD', Q, 'NX', ARG.ticket, ARG.waiter)
  redis.call('PEXPIRE', Q, QUEUE_MS)
end
return answer('done')

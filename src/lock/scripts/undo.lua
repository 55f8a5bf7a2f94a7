-- Undoes a take that may have been granted. A waiter that stays in line keeps its place, and calls none: the one that is called
-- would only do the same. One that leaves goes out of the line, and passes on what was promised to it. Without arguments the
-- script moves a line that has stopped.
-- ARG: waiter, token, stay, ticket (of one that stays; nil: not known, so the place that the server gave is lost)
-- Answers: done
undo(ARG.token)
if ARG.waiter and redis.call('GET', R) == ARG.waiter then redis.call('DEL', R) end
if not ARG.stay then
  if ARG.waiter then redis.call('ZREM', Q, ARG.waiter) end
  hand_over()
elseif ARG.waiter and ARG.ticket then
  redis.call('ZADD', Q, 'NX', ARG.ticket, ARG.waiter)
  redis.call('PEXPIRE', Q, QUEUE_MS)
end
return answer('done')

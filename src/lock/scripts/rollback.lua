-- Undoes a take that got no quorum, and keeps the place in line. Wakes no waiter: it would only do the same.
-- ARG: waiter, token, ticket (nil: not known, so the place that the server gave is lost)
-- Answers: done
undo(ARG.token)
if ARG.waiter then
  if redis.call('GET', R) == ARG.waiter then redis.call('DEL', R) end
  if ARG.ticket then
    redis.call('ZADD', Q, 'NX', ARG.ticket, ARG.waiter)
    redis.call('PEXPIRE', Q, QUEUE_MS)
  end
end
return answer('done')

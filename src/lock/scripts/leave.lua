-- Undoes a take that may have been granted, leaves the line, and passes on what was promised to this waiter. Without
-- arguments it moves a line that has stopped.
-- ARG: waiter, token
-- Answers: done
undo(ARG.token)
if ARG.waiter then
  redis.call('ZREM', Q, ARG.waiter)
  if redis.call('GET', R) == ARG.waiter then redis.call('DEL', R) end
end
hand_over()
return answer('done')

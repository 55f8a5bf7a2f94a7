-- Undoes a take that got no quorum, and keeps the place in line. Wakes nobody: the waiters would only do the same.
-- ARGV: 2 waiter ('' if none)  3 token  4 ticket ('': not known, so the place that the server gave is lost)
-- Returns {'left'}
if holds(ARGV[3]) then redis.call('DEL', K, L, H) end
if ARGV[2] ~= '' then
  if redis.call('GET', R) == ARGV[2] then redis.call('DEL', R) end
  if ARGV[4] ~= '' then
    redis.call('ZADD', Q, 'NX', ARGV[4], ARGV[2])
    redis.call('PEXPIRE', Q, QUEUE_MS)
  end
end
return {'left'}

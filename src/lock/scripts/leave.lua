-- Gives up: undoes a take that may have been granted, leaves the queue, and passes on what was promised to us.
-- ARGV: 2 waiter ('' if none)  3 token
-- Returns {'left'}
local me = ARGV[2]
if holds(ARGV[3]) then redis.call('DEL', K, L, H) end
redis.call('ZREM', Q, me)
if me ~= '' and redis.call('GET', R) == me then redis.call('DEL', R) end
if holder() == false and redis.call('EXISTS', R) == 0 then hand_over() else tell() end
return {'left'}

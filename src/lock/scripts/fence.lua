-- Raises a node that is behind to the fencing token of a lease, if the lease is still there and the node not ahead.
-- ARG: token, fence
-- Answers: raised, higher, gone (node), other (holders)
if not mine(ARG.token) then return not_mine() end
local fence = tonumber(ARG.fence)
if counter() > fence then return seen('higher') end
set_counter(fence)
if redis.call('EXISTS', L) == 1 then redis.call('HSET', L, 'fence', ARG.fence) end -- one made anew would never expire
return answer('raised')

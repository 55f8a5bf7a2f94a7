-- Raises a node that is behind to the fencing token of a lease, if the lease is still there and the node not ahead.
-- ARG: token, place, fence
-- Answers: raised, higher, gone (node), other (holders)
if not mine(ARG.token) then return not_mine() end
local fence, count = tonumber(ARG.fence), counter(ARG.place)
-- A shared lease does not count: one that stands higher has had a later writer's try.
if count > fence and shape ~= 'shared' then return seen('higher') end
set_counter(math.max(count, fence), ARG.place)
local record = record_of(ARG.token)
if redis.call('EXISTS', record) == 1 then redis.call('HSET', record, 'fence', ARG.fence) end -- one made anew would never expire
return answer('raised')

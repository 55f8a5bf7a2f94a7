-- Raises a fencing counter to the fencing token of a lease, if this node has the lease and the counter is not ahead.
-- ARG: token, slot (nil: the lock's counter), fence (the lease's fencing token)
-- Answers: raised, higher (the counter is ahead), gone (node: uptime and run_id, see keys.lua), other (holders)
-- Reads K and the counter; writes the counter and the lease's record. Cost: 6 calls.
-- include lease
if not is_held_by(ARG.token) then return answer_without_lease() end
local fence, count = tonumber(ARG.fence), counter(ARG.slot)
-- A counter above a shared lease's fencing token does no harm: the next writer's fencing token exceeds it.
if count > fence and claim ~= 'shared' then return answer_from_reads('higher') end
set_counter(digits(math.max(count, fence)), ARG.slot)
local record = record_of(ARG.token)
-- A record that HSET creates would never expire, so HSET only changes one that exists.
if redis.call('EXISTS', record) == 1 then redis.call('HSET', record, 'fence', ARG.fence) end
return answer('raised')

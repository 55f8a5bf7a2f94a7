-- Raises the counter to the fencing token of a lease, if the lease is still there and the counter is not ahead.
-- ARG: token, slot, fence
-- Answers: raised, higher, gone (node), other (holders)
-- Reads K and the counter; writes the counter and the record. Cost: 6 calls.
-- include lease
if not is_held_by(ARG.token) then return answer_without_lease() end
local fence, count = tonumber(ARG.fence), counter(ARG.slot)
-- A counter above the fencing token of a shared lease does no harm: the next writer's number exceeds the counter.
if count > fence and claim ~= 'shared' then return answer_from_reads('higher') end
set_counter(digits(math.max(count, fence)), ARG.slot)
local record = record_of(ARG.token)
-- If HSET created a record, the record would never expire.
if redis.call('EXISTS', record) == 1 then redis.call('HSET', record, 'fence', ARG.fence) end
return answer('raised')

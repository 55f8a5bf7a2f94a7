-- Deletes the history of a free lock, and the number of --newest. The fencing counters stay.
-- Answers: forgot (keys: how many keys there were), other (holders: the lock is not free)
-- Cost: 2 calls.
-- include lease
if value ~= false then return answer_from_reads('other', holders(10)) end
local keys = {LOG, RUNS}
for _, part in ipairs({'visits', 'tries', 'newest'}) do keys[#keys + 1] = BASE .. part end
return answer('forgot', {keys = redis.call('DEL', unpack(keys))})

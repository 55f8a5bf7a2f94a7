-- Names the newest hold of a lease, which a release by the lease's own token ends.
-- ARG: token
-- Answers: newest (hold, entered: a number that grows with each entry), gone (node: uptime and run_id, see keys.lua),
--      other (holders)
-- Reads K and H. Cost: 4 calls.
-- include lease
if not is_held_by(ARG.token) then return answer_without_lease() end
local newest = redis.call('ZREVRANGE', H, 0, 0, 'WITHSCORES')
return answer_from_reads('newest', {hold = newest[1] or 'base', entered = newest[2] or '0'})

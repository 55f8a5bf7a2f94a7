-- Counts the run of a lease for --tries, before its command starts. A late copy of the request does no harm, because
-- the node counts only a lease that it has.
-- ARG: token
-- Answers: counted, gone (node: uptime and run_id, see keys.lua), other (holders)
-- Cost: 7 calls.
-- include lease, tries
if not is_held_by(ARG.token) then return answer_without_lease() end
local since = redis.call('HGET', record_of(ARG.token), 'since')
count_try(since and string.sub(since, 1, -4) or ms)
return answer('counted')

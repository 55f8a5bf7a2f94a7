-- Adds one more hold to a lease. Holds are a set, not a count, so a repeated request changes nothing.
-- ARG: token, hold, ttl (ms; nil: the ttl with which the lease was taken), default (the ttl of a lease without record)
-- Answers: extended (fence, holds, left, ttl as recorded, node), gone (node),
--      other (holders: others, or this lease if it was revoked)
-- Reads K, L, INFO; writes H, K, L and ENDS. Cost: 17 calls, if the lease is extended.
-- include lease
if claim or not is_held_by(ARG.token) then return answer_without_lease() end -- only an exclusive lease has holds
local record = read_record(ARG.token)
if record.revoked then return answer_from_reads('other', holders(10)) end
add_hold(ARG.hold)
local left = extend_lease(record)
return answer('extended', {fence = record.fence, holds = count_holds(), left = left, ttl = record.ttl, node = node()})

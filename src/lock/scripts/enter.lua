-- Adds a hold to a lease. Holds are a set, not a count, so a repeated request changes nothing.
-- ARG: token, hold (the id of the new hold), ttl (ms; nil: the ttl with which the lease was taken),
--      default (ms: the ttl of a lease without a record)
-- Answers: extended (fence, holds, left in ms, ttl as recorded, node: uptime and run_id, see keys.lua), gone (node),
--      other (holders: others, or the holder of this lease if it was revoked)
-- Reads K, L, INFO; writes H, K and L. Cost: 15 calls, if the lease is extended.
-- include lease
if claim or not is_held_by(ARG.token) then return answer_without_lease() end -- only an exclusive lease has holds
local record = read_record(ARG.token)
if record.revoked then return answer_from_reads('other', holders(10)) end
add_hold(ARG.hold)
local left = extend_lease(record)
return answer('extended', {fence = record.fence, holds = count_holds(), left = left, ttl = record.ttl, node = node()})

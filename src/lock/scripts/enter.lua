-- Shares a lease by one more hold. Holds are a set, not a count: a repeated request changes nothing.
-- ARG: token, hold, ttl (ms; nil: the one it was taken with), default (ttl of a lease without a record of it)
-- Answers: extended (fence, holds, left, ttl as recorded, node), gone (node), other (holders; also ours, when it was revoked)
if shape or not mine(ARG.token) then return not_mine() end -- only an exclusive lease has holds
local lease = lease(ARG.token)
if lease.revoked then return seen('other', holders(10)) end
add_hold(ARG.hold)
local left = extend_lease(lease)
return answer('extended', {fence = lease.fence, holds = count_holds(), left = left, ttl = lease.ttl, node = flat(node())})

-- Extends a lease. Never shortens one, never re-creates a lost one (RedLock.net counts those as extended). Enters no hold: it may
-- be executed behind the release of that.
-- ARG: token, place, hold (nil: the one that took the lock), ttl (ms; nil: the one it was taken with), default (ttl of a lease
--      without a record of it), renew (the hold's job runs: extended also where the hold was forgotten), note (nil: none;
--      the key by which release.lua tells that the lease was released)
-- Answers: extended (left, holds, forgotten, node), revoked (by), no-hold (the hold was released or forgotten), released,
--      gone (node), other (holders)
local ours, hold = whose(ARG.token, ARG.hold)
if not ours and ARG.note and redis.call('EXISTS', ARG.note) == 1 then return seen('released') end
if not ours then return not_mine() end
hold = hold or 'base'
local lease = lease(ARG.token)
if lease.revoked then return seen('revoked', {by = lease.revoked}) end
local forgotten = hold ~= 'base' and not redis.call('ZSCORE', H, hold)
if forgotten and not ARG.renew then return seen('no-hold') end
local left = extend_lease(lease)
return answer('extended', {left = left, holds = count_holds(), forgotten = forgotten and 1, node = flat(node())})

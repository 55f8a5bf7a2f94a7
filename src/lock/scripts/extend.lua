-- Extends a lease, but never shortens it, and never re-creates a lost one (RedLock.net does). Adds no hold, because the
-- request may arrive after the release of the hold.
-- ARG: token, slot, hold (nil: the hold that took the lock), ttl (ms; nil: the ttl with which the lease was taken),
--      default (ms: the ttl of a lease without a record), renew (given if the hold's job runs: extend the lease even if
--      this node has forgotten the hold), note (the key in which release.lua notes the release; nil: none)
-- Answers: extended (left in ms, holds, forgotten: given if this node lacks the hold, node: uptime and run_id, see
--      keys.lua), revoked (by: user@host), no-hold (the hold was released or forgotten), released (the key `note`
--      exists), gone (node), other (holders)
-- Renews no fencing counter: the counter may expire before a lease of more than 100 days ends.
-- Reads K, L, H, INFO; writes K, L and H (for a member its record, M and P). Cost: 9 calls.
-- include lease
local is_held, hold = find_hold(ARG.token, ARG.hold)
if not is_held and ARG.note and redis.call('EXISTS', ARG.note) == 1 then return answer_from_reads('released') end
if not is_held then return answer_without_lease() end
hold = hold or 'base'
local record = read_record(ARG.token)
if record.revoked then return answer_from_reads('revoked', {by = record.revoked}) end
local forgotten = hold ~= 'base' and not redis.call('ZSCORE', H, hold)
if forgotten and not ARG.renew then return answer_from_reads('no-hold') end
local left = extend_lease(record)
return answer('extended', {left = left, holds = count_holds(), forgotten = forgotten and 1, node = node()})

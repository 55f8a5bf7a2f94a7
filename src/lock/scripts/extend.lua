-- Lengthens a lease. Never shortens one, never creates a lost one anew (RedLock.net counts those as extended).
-- ARGV: 2 token  3 token without the suffix of a hold (the same if it has none)  4 ttl (ms; 0: the one it was taken with)
--       5 ttl for a lease without a record of it
--       6 the hold of a job that runs: entered again where it was forgotten ('': none; 'base' took the lock)
-- Returns {'extended', PTTL, holds, fencing token, identity} or {'revoked', by whom} or {'gone', identity}
--      or {'no-hold', holds}: a hold's token, and that hold was given up or forgotten
--      or {'other', value, PTTL, owner record}
local value, hold = holder(), ARGV[6] or ''
if value == nil then return {'other', '', redis.call('PTTL', K), {}} end
if not value then return {'gone', identity()} end
if value == '' or value ~= ARGV[2] and value ~= ARGV[3] then return {'other', value, redis.call('PTTL', K), owner(value)} end
local lease = lease_of(value)
if lease.revoked then return {'revoked', lease.revoked} end
local by = value == ARGV[2] and 'base' or string.sub(ARGV[2], #value + 2)
if by ~= 'base' and not redis.call('ZSCORE', H, by) then return {'no-hold', count_holds()} end
local ttl = tonumber(ARGV[4])
if ttl == 0 then ttl = lease.ttl or tonumber(ARGV[5]) end
local left = lengthen(ttl)
if lease.ttl and ttl > lease.ttl then note_end(by, ttl) end
if hold ~= '' then pcall(add_hold, hold) end -- a server out of memory refuses; the lease is extended all the same
return {'extended', left, count_holds(), lease.fence or '', identity()}

-- Enters a lease that is held once more. Holds are a set, not a count: a repeated request changes nothing.
-- ARGV: 2 token  3 hold  4 ttl (ms; 0: the one it was taken with)  5 ttl for a lease without a record of it
-- Returns {'granted', fencing token, holds, PTTL, recorded ttl (0: none), identity} or {'gone', identity}
--      or {'other', value, PTTL, owner record}
local value = holder()
if value == nil then return {'other', '', redis.call('PTTL', K), {}} end
if not value then return {'gone', identity()} end
local lease = lease_of(value)
if value ~= ARGV[2] or lease.revoked then return {'other', value, redis.call('PTTL', K), owner(value)} end
add_hold(ARGV[3])
local ttl = tonumber(ARGV[4])
if ttl == 0 then ttl = lease.ttl or tonumber(ARGV[5]) end
local left = lengthen(ttl)
if lease.ttl and ttl > lease.ttl then note_end(ARGV[3], ttl) end
return {'granted', lease.fence or '0', count_holds(), left, lease.ttl or 0, identity()}

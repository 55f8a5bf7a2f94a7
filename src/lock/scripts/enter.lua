-- Enters a lease that is held once more. Holds are a set, not a count: a repeated request changes nothing.
-- ARGV: 2 token  3 hold  4 ttl (ms)
-- Returns {'granted', fencing token, holds} or {'gone'} or {'other', value, PTTL, owner record}
local value = holder()
if not value then return {'gone'} end
if value ~= ARGV[2] or redis.call('HGET', L, 'revoked') then return {'other', value, redis.call('PTTL', K), owner(value)} end
-- The hold that took the lock, unless it has been given up already.
if redis.call('EXISTS', H) == 0 then redis.call('ZADD', H, 0, 'base') end
redis.call('ZADD', H, 'NX', string.format('%.0f', server_us()), ARGV[3])
local left = redis.call('PTTL', K)
if left < 0 then redis.call('PERSIST', H) else redis.call('PEXPIRE', H, math.max(left, 1)) end
lengthen(tonumber(ARGV[4]))
return {'granted', redis.call('HGET', L, 'fence') or '0', redis.call('ZCARD', H)}

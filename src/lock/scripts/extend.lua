-- Lengthens a lease. Never shortens one, never creates a lost one anew (RedLock.net counts those as extended).
-- ARGV: 2 token  3 token without the suffix of a hold (the same if it has none)  4 ttl (ms; 0: the one it was taken with)
--       5 ttl for a lease without a record of it
-- Returns {'extended', PTTL, holds, fencing token} or {'revoked', by whom} or {'gone'} or {'other', value, PTTL, owner record}
local value = holder()
if not value then
  if value == nil then return {'other', '', redis.call('PTTL', K), {}} end
  return {'gone'}
end
if value == '' or value ~= ARGV[2] and value ~= ARGV[3] then return {'other', value, redis.call('PTTL', K), owner(value)} end
local lease = redis.call('HMGET', L, 'token', 'ttl', 'fence', 'revoked')
if lease[1] ~= value then lease = {} end
if lease[4] then return {'revoked', lease[4]} end
local ttl = tonumber(ARGV[4])
if ttl == 0 then ttl = tonumber(lease[2] or ARGV[5]) end
return {'extended', lengthen(ttl), math.max(redis.call('ZCARD', H), 1), lease[3] or ''}

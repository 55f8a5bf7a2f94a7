-- Ends somebody's lease: safely (it can no longer be extended, so its job is stopped) or at once.
-- ARGV: 2 what the token must begin with ('': whatever it is)  3 'revoke' or 'force'  4 by whom
-- Returns {'revoked' or 'released', value, PTTL, owner record} or {'gone', identity} or {'other', value, PTTL, owner record}
--      or {'foreign', type, PTTL}: another type, or a lease that is not ours to revoke
local value = holder()
if value == nil then return {'foreign', redis.call('TYPE', K).ok, redis.call('PTTL', K)} end
if not value then return {'gone', identity()} end
local seen = {value, redis.call('PTTL', K), owner(value)}
if string.sub(value, 1, #ARGV[2]) ~= ARGV[2] then return {'other', unpack(seen)} end
if ARGV[3] == 'revoke' then
  if #seen[3] == 0 then return {'foreign', 'string', seen[2]} end
  redis.call('HSETNX', L, 'revoked', ARGV[4])
  if redis.call('HEXISTS', L, 'kept') == 0 then return {'revoked', unpack(seen)} end
end
redis.call('DEL', K, L, H)
hand_over()
return {'released', unpack(seen)}

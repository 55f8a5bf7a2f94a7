-- Gives a node that has lost its memory the lease that a quorum of the others still has. Counts like a grant.
-- ARGV: 2 token  3 ttl (ms)  4 fencing token  5 host  6 pid  7 user  8 label
-- Returns {'extended', PTTL, holds, fencing token} or {'other', value, PTTL, owner record}
local value = holder()
local ttl = tonumber(ARGV[3])
if value == false then
  redis.call('SET', K, ARGV[2], 'NX', 'PX', ttl)
  set_fence(math.max(tonumber(redis.call('GET', F)) or 0, tonumber(ARGV[4])))
  record(ARGV[2], ttl, ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8])
elseif value ~= ARGV[2] then
  return {'other', value or '', redis.call('PTTL', K), owner(value)}
end
return {'extended', lengthen(ttl), math.max(redis.call('ZCARD', H), 1), ARGV[4]}

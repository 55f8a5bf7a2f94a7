-- Gives a node that has forgotten it the lease that its holder still has. Counts like a grant. Asks neither the queue nor
-- the reservation: the holder goes before all that wait.
-- ARGV: 2 token  3 ttl (ms; recorded)  4 fencing token  5 host  6 pid  7 user  8 label
--       9 run_id that came with 'gone' ('': refused)  10 '1': the only node  11 hold ('base' took the lock)
-- Returns {'extended', PTTL, holds, fencing token, identity}
--      or {'restarted', identity}: another run than the one that was asked
--      or {'higher', counter}: the only node, and it has granted a later lease since
--      or {'revoked', by whom} or {'other', value, PTTL, owner record}
local who = identity()
local ttl, fence, hold = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[11] or ''
if who[2] ~= (ARGV[9] or '') then return {'restarted', who} end
local value = holder()
if value == false then
  local counter = tonumber(redis.call('GET', F)) or 0
  if ARGV[10] == '1' and counter > fence then return {'higher', string.format('%.0f', counter)} end
  redis.call('SET', K, ARGV[2], 'NX', 'PX', ttl)
  redis.call('DEL', R)
  set_fence(math.max(counter, fence))
  record(ARGV[2], ttl, ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8])
elseif value ~= ARGV[2] then
  return {'other', value or '', redis.call('PTTL', K), owner(value)}
end
local lease = lease_of(ARGV[2])
if lease.revoked then return {'revoked', lease.revoked} end
local left = lengthen(ttl)
if hold ~= '' then add_hold(hold) end
return {'extended', left, count_holds(), ARGV[4], who}

-- Grants a lease to ARG.token for ARG.ttl ms, and notes the run that begins. No other file grants leases. The script
-- that includes this file sets:
-- fence (the lease's fencing token), count (the new value of the counter), slot (nil: none)
-- since (the moment of the grant, us), began (the same moment, ms)
-- for a member: mark (the value that K gets if the lock is free), list (the function list_member)
-- The record says in `once` that the run has --once-per: `labelled` if its call names its label, else `1`.
if value == false then
  value = mark or ARG.token
  redis.call('SET', K, value, 'NX', 'PX', ARG.ttl)
  redis.call('DEL', L, H, M, P) -- remains of a lock whose value was deleted by hand
end
local record = mark and BASE .. 'member:' .. ARG.token or L
redis.call('HSET', record, 'token', ARG.token, 'fence', fence, 'ttl', ARG.ttl, 'since', since, 'host', ARG.host,
  'pid', ARG.pid, 'user', ARG.user, 'label', ARG.label)
if ARG.once then redis.call('HSET', record, 'once', ARG.labelled and 'labelled' or '1') end
if ARG.renewal then redis.call('HSET', record, 'renewal', ARG.renewal) end
if mark then
  list(count, slot)
else
  redis.call('SET', F, count, 'PX', FENCE_MS)
  redis.call('PEXPIRE', L, ARG.ttl)
end
-- include begin

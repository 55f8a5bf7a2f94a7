-- Grants a lease to ARG.token for ARG.ttl ms, and begins the lease's run. No other file grants leases. For speed, this
-- file creates no functions. The script that includes this file sets:
-- fence (the lease's fencing token), count (the new value of the counter), slot (nil: none)
-- since (the moment of the grant, us), began (the same moment, ms)
-- for a member: mark (the value that K gets if the lock is free), list (the function list_member)
-- The run is a JSON object. Its values are texts, and it has no spaces between its parts. ARG.entry has the fields that
-- redlock knows (run.rs); nil: the memory notes no run.
if value == false then
  value = mark or ARG.token
  redis.call('SET', K, value, 'NX', 'PX', ARG.ttl)
  redis.call('DEL', L, H, M, P) -- remains of a lock whose value was deleted by hand
end
local record = mark and BASE .. 'member:' .. ARG.token or L
redis.call('HSET', record, 'token', ARG.token, 'fence', fence, 'ttl', ARG.ttl, 'since', since, 'host', ARG.host,
  'pid', ARG.pid, 'user', ARG.user, 'label', ARG.label)
if ARG.renewal then redis.call('HSET', record, 'renewal', ARG.renewal) end
if mark then
  list(count, slot)
else
  redis.call('SET', F, count, 'PX', FENCE_MS)
  redis.call('PEXPIRE', L, ARG.ttl)
end
-- If the memory of runs cannot be written, the grant still succeeds.
if ARG.entry then
  local run = '{"t":"' .. ARG.token .. '","b":"' .. began .. '","f":"' .. fence
    .. (slot and '","i":"' .. slot or '') .. '",' .. string.sub(ARG.entry, 2)
  if type(redis.pcall('HSET', OPEN, ARG.token, run)) == 'number' then
    redis.pcall('ZADD', ENDS, ms + ARG.ttl, ARG.token)
    redis.pcall('PEXPIRE', OPEN, FENCE_MS)
    redis.pcall('PEXPIRE', ENDS, FENCE_MS)
  end
end

-- Grants a lease to ARG.token for ARG.ttl, and begins the lease's run. No other file grants leases. Straight-line code,
-- for speed. The including script sets fence (the fencing token), count (the new value of the counter), slot, since
-- (the moment of the grant, us) and began (the same moment, ms). For a member it also sets mark (the value that K gets
-- if the lock is free) and list (the function list_member). The run is a JSON object whose values are texts, without
-- spaces between its parts. ARG.entry is the part of the run that redlock knows (run.rs).
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

-- The grant of a lease to ARG.token for ARG.ttl, and the beginning of its run: straight lines, the only text of it.
-- Before it: fence (its fencing token), count (what the counter then stands at), slot, since (us) and began (ms), when
-- the token got it; of a lease beside others mark (the value of the lock, if it has none) and list, which is
-- list_member. The run is a JSON object of texts, without spaces. What its redlock knows of it is ARG.entry (run.rs).
if value == false then
  value = mark or ARG.token
  redis.call('SET', K, value, 'NX', 'PX', ARG.ttl)
  redis.call('DEL', L, H, M, P) -- what a value that was deleted by hand has left is nothing
end
redis.call('HSET', mark and BASE .. 'member:' .. ARG.token or L, 'token', ARG.token, 'fence', fence, 'ttl', ARG.ttl,
  'since', since, 'host', ARG.host, 'pid', ARG.pid, 'user', ARG.user, 'label', ARG.label,
  'renewal', ARG.renewal or ARG.ttl)
if mark then
  list(count, slot)
else
  redis.call('SET', F, count, 'PX', FENCE_MS)
  redis.call('PEXPIRE', L, ARG.ttl)
end
-- What cannot be written into the memory fails no grant.
if ARG.entry then
  local run = '{"t":"' .. ARG.token .. '","b":"' .. began .. '","f":"' .. fence
    .. (slot and '","i":"' .. slot or '') .. '",' .. string.sub(ARG.entry, 2)
  if type(redis.pcall('HSET', OPEN, ARG.token, run)) == 'number' then
    redis.pcall('ZADD', ENDS, string.format('%.0f', ms + ARG.ttl), ARG.token)
    redis.pcall('PEXPIRE', OPEN, FENCE_MS)
    redis.pcall('PEXPIRE', ENDS, FENCE_MS)
  end
end

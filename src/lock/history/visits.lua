-- Notes the calls of hosts in VISITS, a sorted set: host -> the host's last call, as the time in ms and a digit for the
-- result. VISITS lasts as long as the log (begin.lua).
local VISITS, HOSTS = BASE .. 'visits', 100 -- VISITS keeps the HOSTS hosts that came last

-- Notes that the host came, and `met`, the result: '0' the host took the lock, '1' others held the lock, '2' a run had
-- succeeded within --once-per, '3' another reason, such as holders with another claim. If VISITS cannot be written, the
-- script goes on.
local function note_visit(met)
  if not ARG.entry or redis.pcall('ZADD', VISITS, ms .. met, ARG.host) ~= 1 then return end
  pcall(function()
    if redis.call('ZCARD', VISITS) > HOSTS then redis.call('ZPOPMIN', VISITS) end
    redis.call('PEXPIRE', VISITS, LOG_MS)
  end)
end

-- Gives up one hold of a lease, and frees the lock with the last one.
-- ARGV: 2 token  3 token without the suffix of a hold (the same if it has none)  4 the hold: its id, 'base', or 'newest'
--       5 how long the lock stays taken (ms)
-- Returns {'released'} or {'still-held', holds} or {'gone', identity} or {'other', value, PTTL, owner record}
local value, hold, keep = holder(), ARGV[4], tonumber(ARGV[5])
if value == nil then return {'other', '', redis.call('PTTL', K), {}} end
if not value then
  -- Restarted: a waiter that remembers the lease keeps the lock for this holder, see take.lua.
  if ARGV[2] == '' or redis.call('GET', R) ~= ARGV[2] then return {'gone', identity()} end
  if keep > 0 then
    redis.call('PEXPIRE', R, keep)
  else
    redis.call('DEL', R)
    hand_over()
  end
  return {'released'}
end
if value ~= '' and value == ARGV[2] then
  if hold ~= 'base' then hold = 'newest' end -- a token of another library that only looks like a hold of ours
elseif value == '' or value ~= ARGV[3] then
  return {'other', value, redis.call('PTTL', K), owner(value)}
end
local entered = redis.call('EXISTS', H) == 1
if entered then
  if hold == 'newest' then hold = redis.call('ZPOPMAX', H)[1] else redis.call('ZREM', H, hold) end
end
local left = redis.call('ZCARD', H)
if left > 0 then
  -- What this hold has lengthened ends with it; the ttl of the lease and what other holds have lengthened stay.
  redis.call('HDEL', L, 'to:' .. hold)
  local lasts, now, record = lease_of(value).ttl, server_us(), redis.call('HGETALL', L)
  for i = 1, lasts and #record or 0, 2 do
    if string.sub(record[i], 1, 3) == 'to:' then lasts = math.max(lasts, math.floor((record[i + 1] - now) / 1000)) end
  end
  if lasts and redis.call('PTTL', K) > lasts then
    redis.call('PEXPIRE', K, lasts)
    redis.call('PEXPIRE', L, lasts)
    redis.call('PEXPIRE', H, lasts)
  end
  return {'still-held', left}
end
if not entered and hold ~= 'base' and hold ~= 'newest' then
  return {'still-held', 1} -- released before; the outer hold is all that is left
end
if keep > 0 then
  -- The expiry first, then the note: a server out of memory refuses to write what is not behind another write.
  redis.call('PEXPIRE', K, keep)
  redis.pcall('HSET', L, 'kept', string.format('%.0f', server_us()))
  redis.call('PEXPIRE', L, keep)
else
  redis.call('DEL', K, L)
  hand_over()
end
return {'released'}

-- Gives up one hold of a lease, and frees the lock with the last one.
-- ARGV: 2 token  3 token without the suffix of a hold (the same if it has none)  4 the hold: its id, 'base', or 'newest'
--       5 how long the lock stays taken (ms)
-- Returns {'released'} or {'still-held', holds} or {'gone'} or {'other', value, PTTL, owner record}
local value = holder()
if not value then
  if value == nil then return {'other', '', redis.call('PTTL', K), {}} end
  return {'gone'}
end
local hold = ARGV[4]
if value ~= '' and value == ARGV[2] then
  if hold ~= 'base' then hold = 'newest' end -- a token of another library that only looks like a hold of ours
elseif value == '' or value ~= ARGV[3] then
  return {'other', value, redis.call('PTTL', K), owner(value)}
end
if redis.call('EXISTS', H) == 1 then
  if hold == 'newest' then redis.call('ZPOPMAX', H) else redis.call('ZREM', H, hold) end
  local left = redis.call('ZCARD', H)
  if left > 0 then return {'still-held', left} end
elseif hold ~= 'base' and hold ~= 'newest' then
  return {'still-held', 1} -- released before; the outer hold is all that is left
end
local keep = tonumber(ARGV[5])
if keep > 0 then
  redis.call('HSET', L, 'kept', string.format('%.0f', server_us()))
  redis.call('PEXPIRE', K, keep)
  redis.call('PEXPIRE', L, keep)
else
  redis.call('DEL', K, L)
  hand_over()
end
return {'released'}

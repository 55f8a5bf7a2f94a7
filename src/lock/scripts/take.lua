-- Takes the lock if it is free and nobody else's turn; otherwise queues the waiter, if there is one.
-- ARGV: 2 waiter ('' takes or leaves it)  3 token  4 ttl (ms)  5 ticket ('': the server gives one)
--       6 the client's clock (ms since 1970)  7 '1': tell the node's identity  8 host  9 pid  10 user  11 label
-- Returns {'granted', fencing token, identity}
--      or {'held', value, PTTL, owner record, identity, rank, ticket (the one asked for, if any), whether it queued
--          just now, reserved for a waiter}
--      or {'foreign', type, PTTL, identity}
local me, token, ttl, ticket, now = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local who = ARGV[7] == '1' and identity() or {'', ''}

-- The counter is seeded with the client's clock, the same on all nodes, so that losing it does not start again at 1.
local function grant()
  redis.call('SET', K, token, 'NX', 'PX', ttl)
  local fence = set_fence(math.max((tonumber(redis.call('GET', F)) or 0) + 1, now))
  record(token, ttl, fence, ARGV[8], ARGV[9], ARGV[10], ARGV[11])
  return {'granted', fence, who}
end

local value = holder()
if value == nil then return {'foreign', redis.call('TYPE', K).ok, redis.call('PTTL', K), who} end
if value == token then -- an earlier reply was lost
  lengthen(ttl)
  return {'granted', redis.call('HGET', L, 'fence') or '0', who}
end

if not value then
  local reserved = redis.call('GET', R)
  if me ~= '' and reserved == me then
    redis.call('DEL', R)
    redis.call('ZREM', Q, me)
    return grant()
  end
  if not reserved then
    if redis.call('EXISTS', Q) == 0 then return grant() end
    if me ~= '' and ticket ~= '' then redis.call('ZADD', Q, 'NX', ticket, me) end -- thawed: its old place
    reserved = pass(me)
    if not reserved or reserved == me then return grant() end
  end
end

local rank, queued = -1, 0
if me ~= '' then
  rank = redis.call('ZRANK', Q, me)
  if rank then
    if ticket == '' then ticket = string.format('%.0f', redis.call('ZSCORE', Q, me)) end
  else
    if ticket == '' then
      local last = redis.call('ZRANGE', Q, -1, -1, 'WITHSCORES')[2]
      ticket = string.format('%.0f', math.max(server_us(), (tonumber(last) or 0) + 1))
    end
    redis.call('ZADD', Q, ticket, me)
    redis.call('PEXPIRE', Q, QUEUE_MS)
    queued = 1
    rank = redis.call('ZRANK', Q, me)
  end
  if rank == 0 then redis.call('PEXPIRE', Q, QUEUE_MS) end
end
local left = redis.call('PTTL', value and K or R)
return {'held', value or '', left, value and owner(value) or {}, who, rank, ticket, queued, value and 0 or 1}

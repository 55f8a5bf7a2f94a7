-- Takes the lock if it is free, nobody else's turn, and the node not in quarantine; otherwise queues the waiter, if
-- there is one.
-- ARGV: 2 waiter ('' takes or leaves it)  3 token  4 ttl (ms)  5 ticket ('': the server gives one)
--       6 the client's clock (ms since 1970)  7 not used  8 host  9 pid  10 user  11 label
--       12 quarantine (s; 0: none)
--       A lease seen before: 13 its token ('': none)  14 run_id of the node then  15 how long it may still last (ms)
--       16 its fencing token
-- Returns {'granted', fencing token, identity}
--      or {'held', value, PTTL, owner record, identity, rank, ticket (the one asked for, if any), whether it queued
--          just now, reserved}: with reserved = 1 the lock is free, but kept for a waiter or a holder of before a restart
--      or {'young', seconds left, identity, rank, ticket, whether it queued just now}
--      or {'foreign', type, PTTL, identity}
local me, token, ttl, ticket, now = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local quarantine = tonumber(ARGV[12] or '') or 0
local who = identity()

local function counter()
  return tonumber(redis.call('GET', F)) or 0
end

-- The counter is seeded with the client's clock, the same on all nodes, so that losing it does not start again at 1.
local function grant()
  redis.call('SET', K, token, 'NX', 'PX', ttl)
  local fence = set_fence(math.max(counter() + 1, now))
  record(token, ttl, fence, ARGV[8], ARGV[9], ARGV[10], ARGV[11])
  return {'granted', fence, who}
end

-- Keeps the lock for the holder that this run of the server has forgotten, unless it was here again: then the counter
-- is not below its fencing token.
local function keep_for_holder()
  local theirs, run, left, fence = ARGV[13] or '', ARGV[14], tonumber(ARGV[15] or ''), tonumber(ARGV[16] or '')
  if theirs == '' or run == '' or who[2] == '' or who[2] == run then return false end
  if not left or left < 1 or not fence or counter() >= fence then return false end
  redis.call('SET', R, theirs, 'PX', left)
  return theirs
end

-- Gives the waiter a place in line, its old one if it has one. Returns rank, ticket, whether it was not in line.
local function queue()
  if me == '' then return -1, ticket, 0 end
  local queued = 0
  local score = redis.call('ZSCORE', Q, me)
  if not score then
    if ticket == '' then ticket = behind_all(Q) end
    redis.call('ZADD', Q, ticket, me)
    queued = 1
  elseif ticket == '' then
    ticket = string.format('%.0f', score)
  end
  redis.call('PEXPIRE', Q, QUEUE_MS) -- at each look of any waiter: the first in line may be dead or frozen
  return redis.call('ZRANK', Q, me), ticket, queued
end

local value = holder()
if value == nil then return {'foreign', redis.call('TYPE', K).ok, redis.call('PTTL', K), who} end
if value == token then -- an earlier reply was lost
  lengthen(ttl)
  return {'granted', redis.call('HGET', L, 'fence') or '0', who}
end

if not value then
  local reserved = redis.call('GET', R) or keep_for_holder()
  local uptime = tonumber(who[1])
  if uptime and quarantine > 0 and uptime < quarantine + 1 then -- it has a grain of a second
    return {'young', quarantine + 1 - uptime, who, queue()}
  end
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

local left = redis.call('PTTL', value and K or R)
local rank, queued
rank, ticket, queued = queue()
return {'held', value or '', left, value and owner(value) or {}, who, rank, ticket, queued, value and 0 or 1}

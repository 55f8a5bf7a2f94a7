-- Takes the lock if it fits beside its holders, is not reserved for another, and the node is not in quarantine; otherwise
-- queues the waiter, if there is one.
-- ARG: token, ttl (ms), now (the client's clock, ms since 1970), host, pid, user, label, quarantine (s; nil: off),
--      waiter (nil: takes or leaves it), ticket (nil: the server gives one)
--      of a lease that the waiter has seen: seen (its token), seen_run (of the node then), seen_left (ms), seen_fence
-- Answers: granted (fence, node), held (holders, node, place), reserved (left, node, place), young (node, place)
--      place: rank and ticket of the waiter, queued (it was not in line); no waiter queues for a key of another type
local me, ticket, who = ARG.waiter, ARG.ticket, node()
local quarantine, uptime = tonumber(ARG.quarantine) or 0, tonumber(who.uptime)

local function granted(fence)
  return answer('granted', {fence = fence, node = flat(who)})
end

-- The counter is seeded with the client's clock, the same on all nodes, so that losing it does not start again at 1.
local function take()
  local fence = math.max(counter() + 1, tonumber(ARG.now))
  grant(fence, fence)
  return granted(digits(fence))
end

-- Gives the waiter a place in line, its old one if it has one.
local function refused(outcome, fields)
  fields.node = flat(who)
  if me and value ~= nil then
    local score = redis.call('ZSCORE', Q, me)
    fields.queued = not score and 1
    ticket = ticket or score and digits(score) or behind_all(Q)
    if not score then redis.call('ZADD', Q, ticket, me) end
    redis.call('PEXPIRE', Q, QUEUE_MS) -- at each look of any waiter: the first in line may be dead or frozen
    fields.rank, fields.ticket = redis.call('ZRANK', Q, me), ticket
  end
  return seen(outcome, fields)
end

-- Keeps the lock for the holder that this run of the server has forgotten, unless it was here again: then the counter is not
-- below its fencing token.
local function keep_for_holder()
  local run, left, fence = ARG.seen_run, tonumber(ARG.seen_left), tonumber(ARG.seen_fence)
  if not ARG.seen or not run or who.run == '' or who.run == run then return false end
  if not left or left < 1 or not fence or counter() >= fence then return false end
  redis.call('SET', R, ARG.seen, 'PX', left)
  return ARG.seen
end

if mine(ARG.token) then -- an earlier reply was lost
  lengthen(tonumber(ARG.ttl))
  return granted(redis.call('HGET', L, 'fence') or '0')
end
if not fits(ARG.claim) then return refused('held', {holders = holders()}) end

local reserved = redis.call('GET', R) or keep_for_holder()
if quarantine > 0 and (not uptime or uptime < quarantine + 1) then -- it has a grain of a second
  return refused('young', {})
end
if me and reserved == me then
  redis.call('DEL', R)
  redis.call('ZREM', Q, me)
  return take()
end
if not reserved then
  if redis.call('EXISTS', Q) == 0 then return take() end
  if me and ticket then redis.call('ZADD', Q, 'NX', ticket, me) end -- thawed: its old place
  reserved = call(me)
  if not reserved or reserved == me then return take() end
end
return refused('reserved', {left = until_free()})

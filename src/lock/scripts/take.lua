-- Takes the lock if it fits beside its holders, is not reserved for another, and the node is not in quarantine; otherwise
-- queues the waiter, if there is one.
-- ARG: token, ttl (ms), now (the client's clock, ms since 1970; nil: where there is no counter, it is 0), host, pid, user, label,
--      quarantine (s; nil: off), waiter (nil: takes or leaves it), ticket (nil: the server gives one)
--      place (slots of several nodes: the one that all are asked for, as nobody else may have this token; nil: the first free one)
--      once (ms: nothing is granted if a success of a run with it began less than that ago)
--      log (how many runs to keep; nil: none), waited (ms in line before this)
--      earlier (tokens of its tries before this that this node has not confirmed to have undone, between spaces)
--      of a lease that the waiter has seen: seen (its token), seen_run (of the node then), seen_left (ms), seen_fence, seen_claim,
--      seen_slot
-- Answers: granted (fence, place, longest, node), taken (free: other places, longest, node), held (holders, node, place in line),
--      reserved (left, longest, node, place in line), young (longest, node, place in line), other-shape (holders, node), ran (success, clock in ms: see journal.lua)
--      place in line: rank and ticket of the waiter, queued (it was not in line); no waiter queues for a key of another type
local me, ticket, who = ARG.waiter, ARG.ticket, node()
local quarantine, uptime = tonumber(ARG.quarantine) or 0, tonumber(who.uptime)
local limit = tonumber(string.match(ARG.claim, '^slots:(%d+)$'))
local freed = undo_earlier()

-- True if all places from first to last are taken. Of a free lock none is: what an older version's --force has left is nothing.
local function are_taken(first, last)
  return shape and redis.call('ZCOUNT', P, first, last) >= last - first + 1
end

-- The first free place from this one on, round; nil when there is none.
local function free_from(first)
  local last = limit - 1
  if are_taken(first, last) then
    if are_taken(0, last) then return nil end
    first = 0
  end
  while first < last do
    local middle = math.floor((first + last) / 2)
    if are_taken(first, middle) then first = middle + 1 else last = middle end
  end
  return first
end

-- Free places, the next ones: all nodes name about the same.
local function free_places()
  local list, place = {}, free_from(tonumber(ARG.place))
  while place and place ~= list[1] and #list < 32 do
    list[#list + 1] = place
    place = free_from((place + 1) % limit)
  end
  return list
end

local function with_facts(fields)
  fields.node = flat(who)
  fields.longest = shape and redis.call('HGET', L, 'longest')
  return fields
end

local function granted(fence, place)
  return answer('granted', with_facts({fence = fence, place = place}))
end

-- The counter is seeded with the client's clock, the same on all nodes, so that losing it does not start again at 1. Shared
-- leases do not count: over several nodes they would outbid each other. There they do not seed either: see fencing.rs.
local function take()
  if ARG.claim ~= 'exclusive' then redis.call('TIME') end -- where that is refused, members would never run out
  local place = limit and (tonumber(ARG.place) or free_from(0))
  local fence = counter(place)
  if ARG.claim ~= 'shared' then fence = fence + 1 end
  fence = (ARG.claim ~= 'shared' or fence == 0) and math.max(fence, tonumber(ARG.now) or 0) or fence
  grant(fence, fence, place)
  note_begin(fence, place)
  if shape then hand_over() end
  return granted(digits(fence), place)
end

-- Grants nothing: what an earlier try had is for the next.
local function turned_away(outcome, fields)
  if freed then hand_over() end
  return seen(outcome, fields)
end

-- Gives the waiter a place in line, its old one if it has one.
local function refused(outcome, fields)
  with_facts(fields)
  if me and value ~= nil then
    local score = redis.call('ZSCORE', Q, me)
    fields.queued = not score and 1
    ticket = ticket or score and digits(score) or behind_all(Q)
    if not score then redis.call('ZADD', Q, ticket, me) end
    redis.call('PEXPIRE', Q, QUEUE_MS) -- at each look of any waiter: the first in line may be dead or frozen
    fields.rank, fields.ticket = redis.call('ZRANK', Q, me), ticket
  end
  return turned_away(outcome, fields)
end

-- Keeps the lock for the holder that this run of the server has forgotten, unless it was here again: then the counter is not
-- below its fencing token.
local function keep_for_holder()
  local run, left, fence = ARG.seen_run, tonumber(ARG.seen_left), tonumber(ARG.seen_fence)
  if not ARG.seen or not run or who.run == '' or who.run == run then return false end
  if not left or left < 1 or not fence then return false end
  local count = counter(ARG.seen_slot)
  if count > fence or count == fence and ARG.seen_claim ~= 'shared' then return false end
  redis.call('SET', R, ARG.seen, 'PX', left)
  return ARG.seen
end

if mine(ARG.token) then -- an earlier reply was lost
  lengthen(ARG.token, tonumber(ARG.ttl))
  return granted(redis.call('HGET', record_of(ARG.token), 'fence') or '0', shape and redis.call('ZSCORE', P, ARG.token))
end
local ran = ARG.once and (value == false or redis.call('HEXISTS', L, 'kept') == 1) and recent_success()
if ran then return turned_away('ran', ran) end
if value ~= false and shape ~= ARG.claim then
  local is_other = value ~= nil and (limit or shape and shape ~= 'shared')
  if not is_other then return refused('held', holders(10)) end
  return turned_away('other-shape', with_facts(holders(10)))
end

local reserved = redis.call('GET', R) or value == false and keep_for_holder()
if quarantine > 0 and (not uptime or uptime < quarantine + 1) then -- it has a grain of a second
  return refused('young', {})
end
if not fits(ARG.claim) then return refused('held', holders(10)) end
if ARG.place and not is_vacant() then return turned_away('taken', with_facts({free = free_places()})) end
if me and reserved == me then
  redis.call('DEL', R)
  redis.call('ZREM', Q, me)
  return take()
end
if not reserved then
  if redis.call('EXISTS', Q) == 0 then return take() end
  if me and ticket then redis.call('ZADD', Q, 'NX', ticket, me) end -- thawed: its old place
  reserved = call(me)
  if reserved == nil and more then return refused('reserved', {left = 0}) end -- for as long as the dead are before it
  if reserved == nil then return refused('held', holders(10)) end -- one is before it that does not fit
  if not reserved or reserved == me then return take() end
end
-- Another is called, and there is room for both: who does not wait would be turned away for nothing.
local alike = string.sub(reserved, 1, 1) == (limit and 'p' or 's') and ARG.claim ~= 'exclusive'
if alike and redis.call('EXISTS', Q) == 0 and (not limit or not shape or redis.call('ZCARD', P) + 2 <= limit) then return take() end
return refused('reserved', {left = redis.call('PTTL', R)})

-- Takes the lock if it fits beside its holders, is not reserved for another, and the node is not in quarantine;
-- otherwise queues the waiter, if there is one. What more than a free lock has to be looked at stands behind this, in
-- contend.lua.
-- ARG: token, ttl (ms), now (the client's clock, ms since 1970; nil: where there is no counter, it is 0), host, pid,
--      user, label, quarantine (s; nil: off), waiter (nil: takes or leaves it), ticket (nil: the server gives one)
--      place (slots of several nodes: the one that all are asked for, as nobody else may have this token;
--      nil: the first free one)
--      once (ms: nothing is granted if a success of a run with it began less than that ago)
--      entry (of its run for the memory, see run.lua; nil: no memory)
--      earlier (tokens of its tries before this that this node has not confirmed to have undone, between spaces)
--      of a lease that the waiter has seen: seen (its token), seen_run_id (of the node then), seen_left (ms),
--      seen_fence, seen_claim, seen_slot
-- Answers: granted (fence, place, longest, node), taken (free: other places, longest, node), held (holders, node,
--      position), reserved (left, longest, node, position), young (longest, node, position), other-shape (holders,
--      node), ran (success, clock in ms: see run.lua)
--      position: rank and ticket of the waiter, queued (it was not in line); no waiter queues for a key of another type
-- Reads K, R, Q, INFO; a grant reads the counter and writes K, L, F (of a member M, P, S and its record), OPEN and
-- ENDS.
-- Cost: 14 calls for an exclusive lock that is free, 4 of them for the memory.
local me, who = ARG.waiter, node()
local quarantine, uptime = tonumber(ARG.quarantine) or 0, tonumber(who.uptime)
local is_young = quarantine > 0 and (not uptime or uptime < quarantine + 1) -- it has a grain of a second
local limit = tonumber(string.match(ARG.claim, '^slots:(%d+)$'))
local freed = undo_earlier()

-- The first free place from this one on, round; nil when there is none.
local function free_from(first)
  -- True if all places between these are taken. Of a free lock none is, though P may still be there: a mark that was
  -- deleted by hand leaves it.
  local function are_taken(first, last)
    return shape and redis.call('ZCOUNT', P, first, last) >= last - first + 1
  end

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

local function with_facts(fields)
  fields.node = flat(who)
  fields.longest = shape and redis.call('HGET', L, 'longest')
  return fields
end

local function granted(fence, place)
  return answer('granted', with_facts({fence = fence, place = place}))
end

-- The counter is seeded with the client's clock, the same on all nodes, so that losing it does not start again at 1.
-- Shared leases do not count: over several nodes they would outbid each other. There they do not seed either: see
-- fencing.rs.
local function take()
  if ARG.claim ~= 'exclusive' then redis.call('TIME') end -- where that is refused, members would never run out
  local place = limit and (tonumber(ARG.place) or free_from(0))
  local is_shared, fence = ARG.claim == 'shared', counter(place)
  local least = is_shared and fence or fence + 1
  local is_seed = (fence == 0 or not is_shared) and least < tonumber(ARG.now or 0)
  fence = is_seed and ARG.now or digits(least)
  grant(fence, fence, place)
  remember_begin(fence, place)
  if shape then hand_over() end
  return granted(fence, place)
end

-- The lock is free, and there is nothing else to think of: no reservation, no line, and no run that has ended without a
-- word. (The last is for pcall: of a slot of a Cluster that is being moved, only the keys that were declared are
-- there.) The rest is in contend.lua.
local is_simple = value == false and not (is_young or ARG.once or ARG.seen)
if is_simple and redis.pcall('EXISTS', R, Q, ENDS) == 0 then return take() end

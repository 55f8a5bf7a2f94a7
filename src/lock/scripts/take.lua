-- Grants a lease, unless a holder, a reservation, an earlier waiter or a quarantine is in the way, or the lock is
-- closed (close.lua). If the answer is held, reserved, quarantined or closed, a caller that waits is put in line.
-- ARG: token, ttl (ms), now (the client's clock, ms since 1970, for the fencing token; nil: a missing counter is 0),
--      host, pid, user, label, quarantine (s; nil: off), waiter (the caller's name in line; nil: the caller does not
--      wait), ticket (the caller's ticket; nil: the server gives a ticket), slot (the slot to grant, with several
--      nodes; nil: the first free slot)
--      once (ms: nothing is granted if the last successful run with --once-per began less than this ago; nil: the run
--      does not have --once-per)
--      expected (what the call promises: P and D, see log.lua; with once)
--      labelled (given if the call names its label; with once)
--      tries (the most runs that may begin within ARG.once; nil: any number)
--      newest (the caller's number for --newest: nothing is granted if a larger number has come, see newest.lua)
--      renewal (ms, the ttl that renewals will ask for: 0 if nothing renews the lease; nil: as ttl)
--      entry (what redlock knows of the run, see log.lua; nil: neither the run nor the visit is noted)
--      earlier (the tokens of the caller's earlier tries, separated by spaces: the script undoes these tries first)
--      about a lease that the waiter saw at an earlier try: seen (that lease's token; nil: none), seen_run_id (the
--      node's run_id at that time), seen_left (ms until that lease ends), seen_fence (that lease's fencing token),
--      seen_claim, seen_slot
-- Answers: granted (fence, slot, began in ms, longest: the longest ttl of a member, node: uptime and run_id, see
--      keys.lua),
--      taken (ARG.slot is taken; free: other slots, longest, node), held (holders, node, position),
--      reserved (left: ms until the reservation ends, longest, node, position), quarantined (longest, node, position),
--      closed (left: ms until it opens, closed: who closed it, longest, node, position),
--      other-claim (the holders have a claim of another kind; holders, node),
--      ran (a run has succeeded within ARG.once; success: this run, clock in ms),
--      tried (ARG.tries runs have begun within ARG.once; tries: how many, first: the beginning of the first, last: the
--      run that began last, going: the value of K, clock in ms), superseded (a larger number has come; newest: the
--      value of NEWEST, clock in ms, node)
--      position: rank and ticket of the waiter, queued (given if this call has put the waiter in line). There is no
--      position if the caller does not wait, or if K is a key of another type.
-- Reads K, R, Q, S, CLOSED, INFO (with `once` RUNS, with `newest` NEWEST). A grant reads the counter. A grant writes K, L, F,
-- LOG and VISITS (for a member M, P, S and the member's record). A refusal writes VISITS. A grant or a refusal may write
-- Q, R and NEWEST.
-- Cost: 18 calls for an exclusive lock that was never taken before, 13 for one whose last caller was the same host.
local quarantine, slot, fence, mark, reply = tonumber(ARG.quarantine) or 0, nil, nil, nil, nil
-- include node
local who, uptime, run_id = node()
local is_quarantined = quarantine > 0 and (not uptime or uptime < quarantine + 1) -- uptime is in whole seconds
local least, list, call_others = 0, nil, nil
local CLOSED = BASE .. 'closed'
-- include visits

-- The plain case: the claim is exclusive, the lock is free, and no rare argument is given. There is no reservation, no
-- line, and no counter of slots.
local is_plain = value == false and ARG.claim == 'exclusive'
  and not (is_quarantined or ARG.once or ARG.newest or ARG.seen or ARG.earlier)
if not is_plain or redis.call('EXISTS', R, Q, S, CLOSED) > 0 then
  -- include line, lease, once
  local me, limit = ARG.waiter, tonumber(string.match(ARG.claim, '^slots:(%d+)$'))
  local superseded, raise_newest
  if ARG.newest then
    -- include newest
  end
  local freed = undo_earlier()

  -- The first free slot, in order from slot `first`; behind the last slot comes slot 0. nil if all slots are taken.
  local function free_from(first)
    -- True if all slots from `first` to `last` are taken. If somebody deletes the lock's key by hand, P still lists
    -- slots, so `claim` is checked, too: it is nil if the lock is free.
    local function are_taken(first, last)
      return claim and redis.call('ZCOUNT', P, first, last) >= last - first + 1
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

  -- The free slots from ARG.slot on, at most 32; behind the last slot comes slot 0. All nodes begin at ARG.slot, so
  -- that their lists are nearly the same.
  local function free_slots()
    local list, free = {}, free_from(tonumber(ARG.slot))
    while free and free ~= list[1] and #list < 32 do
      list[#list + 1] = free
      free = free_from((free + 1) % limit)
    end
    return list
  end

  local function with_facts(fields)
    fields.node = who
    fields.longest = claim and redis.call('HGET', L, 'longest')
    return fields
  end

  -- The answer of a call that gets no lease. If this request has undone a granted try of the caller, the next waiter
  -- is called first.
  local function turned_away(outcome, fields)
    if freed then hand_over() end
    return answer_from_reads(outcome, fields)
  end

  -- The answer of a call that must not get the lock now. If the caller waits, it is put in line, with the ticket that
  -- it has already, or else behind all waiters. If K is a key of another type, nobody is put in line.
  local function refused(outcome, fields)
    with_facts(fields)
    local is_queueing, score = me and value ~= nil, nil
    if is_queueing then score = redis.call('ZSCORE', Q, me) end
    if not score and (is_queueing or not me) then note_visit(outcome == 'held' and '1' or '3') end
    if is_queueing then
      fields.queued = not score and 1
      local ticket = ARG.ticket or score and digits(score) or behind_all(Q)
      if not score then redis.call('ZADD', Q, ticket, me) end
      redis.call('PEXPIRE', Q, QUEUE_MS) -- each waiter prolongs Q: the first in line may be dead
      if raise_newest then raise_newest() end
      fields.rank, fields.ticket = redis.call('ZRANK', Q, me), ticket
    end
    return turned_away(outcome, fields)
  end

  -- ARG.seen is the token of a holder that the caller saw before this call. If the server has restarted since, reserves
  -- the lock for this holder, and returns ARG.seen. Otherwise returns false. If the counter has reached this holder's
  -- fencing token, nothing is reserved: after the restart, this holder or a later one has held the lock. If this holder
  -- is a reader, only a larger counter proves this, because readers have equal fencing tokens.
  local function keep_for_holder()
    local left, seen_fence = tonumber(ARG.seen_left), tonumber(ARG.seen_fence)
    if not ARG.seen or not ARG.seen_run_id or run_id == '' or run_id == ARG.seen_run_id then return false end
    if not left or left < 1 or not seen_fence then return false end
    local count = counter(ARG.seen_slot)
    if count > seen_fence or count == seen_fence and ARG.seen_claim ~= 'shared' then return false end
    redis.call('SET', R, ARG.seen, 'PX', left)
    return ARG.seen
  end

  -- Returns the script's answer if the script has nothing to grant; nil if the script has to grant a new lease.
  local function answer_without_grant()
    if is_held_by(ARG.token) then -- an earlier reply was lost
      lengthen(ARG.token, tonumber(ARG.ttl))
      local known = redis.call('HMGET', record_of(ARG.token), 'fence', 'since')
      return answer('granted', with_facts({fence = known[1] or '0', began = known[2] and string.sub(known[2], 1, -4),
        slot = claim and redis.call('ZSCORE', P, ARG.token)}))
    end
    if superseded then
      note_visit('3')
      return turned_away('superseded', superseded)
    end
    local ran = recent_success()
    if ran then
      note_visit('2')
      return turned_away('ran', ran)
    end
    local tried = tried_enough()
    if tried then
      note_visit('3')
      return turned_away('tried', tried)
    end
    -- Nobody enters a closed lock, not even the waiter that was called: it gives the call back, and keeps its place.
    local closed = redis.call('GET', CLOSED)
    if closed then
      if me and redis.call('GET', R) == me then redis.call('DEL', R) end
      return refused('closed', {left = redis.call('PTTL', CLOSED), closed = closed})
    end
    if value ~= false and claim ~= ARG.claim then
      local is_other = value ~= nil and (limit or claim and claim ~= 'shared')
      if not is_other then return refused('held', holders(10)) end
      note_visit('3')
      return turned_away('other-claim', with_facts(holders(10)))
    end
    local reserved = redis.call('GET', R) or value == false and keep_for_holder()
    if is_quarantined then return refused('quarantined', {}) end
    if not fits(ARG.claim) then return refused('held', holders(10)) end
    if ARG.slot and not is_vacant() then return turned_away('taken', with_facts({free = free_slots()})) end
    if me and reserved == me then
      redis.call('DEL', R)
      redis.call('ZREM', Q, me)
      return nil
    end
    if not reserved then
      if redis.call('EXISTS', Q) == 0 then return nil end
      if me and ARG.ticket then redis.call('ZADD', Q, 'NX', ARG.ticket, me) end -- after a freeze, with its old ticket
      reserved = call_next(me)
      if reserved == nil then return refused('held', holders(10)) end -- the first in line does not fit
      if not reserved or reserved == me then return nil end
    end
    -- The lock is reserved here, for a holder or for another waiter. If that waiter's claim is of the caller's kind
    -- (both are readers, or both want a slot), the caller may get a lease all the same, if there is room for both, and
    -- the line is empty.
    local alike = string.sub(reserved, 1, 1) == (limit and 'p' or 's') and ARG.claim ~= 'exclusive'
    local has_room = not limit or not claim or redis.call('ZCARD', P) + 2 <= limit
    if alike and has_room and redis.call('EXISTS', Q) == 0 then return nil end
    return refused('reserved', {left = redis.call('PTTL', R)})
  end

  reply = answer_without_grant()
  if reply then return reply end
  if raise_newest then raise_newest() end
  -- The fencing token of an exclusive lease is above the lock's counter and the counters of all slots. With a single
  -- node, recreate.lua refuses to re-create a lease whose fencing token is below one of these counters.
  if ARG.claim == 'exclusive' then
    least = counter('all')
  else
    slot = limit and (tonumber(ARG.slot) or free_from(0))
    -- The fencing token of a slot is above the slot's counter and the lock's counter, and at least ARG.now. A shared
    -- lease gets the lock's counter as it is, because over several nodes, shared leases that raise counters would
    -- outbid each other. If the lock's counter is missing, a shared lease gets ARG.now (fencing.rs).
    local count = limit and math.max(counter(slot), counter()) + 1 or counter()
    local is_seed = (limit or count == 0) and count < tonumber(ARG.now or 0)
    fence = is_seed and ARG.now or digits(count)
    mark = ARG.claim .. '.' .. string.sub(redis.sha1hex(ARG.token), 1, 16)
    claim, list, call_others = ARG.claim, list_member, hand_over
  end
end

-- The fencing token of an exclusive lease is at least ARG.now, the client's clock, so that a counter that was lost does
-- not start again at 1. The client sends the same ARG.now to all nodes.
if not fence then
  local known = redis.call('GET', F) or '0'
  if not (string.find(known, '^%d+$') and tonumber(known) < 2 ^ 53) then -- as in `counter`
    return redis.error_reply('NOCOUNTER ' .. F .. ' is no fencing counter')
  end
  fence = math.max(tonumber(known), least) + 1
  fence = fence < tonumber(ARG.now or 0) and ARG.now or string.format('%.0f', fence)
end
local count, since, began = fence, us, ms
-- include grant
note_visit('0')
reply = {'outcome', 'granted', 'fence', fence, 'node', who, 'began', began}
if mark then
  call_others()
  reply[9], reply[10] = 'longest', redis.call('HGET', L, 'longest')
  if slot then reply[11], reply[12] = 'slot', slot end
end
return reply

-- Re-creates a holder's lease on this node, which has forgotten it. Raises the counter to the lease's fencing token.
-- Ignores the queue and the reservation: the holder goes before all waiters.
-- ARG: token, slot (nil: the lease has none), ttl (ms: how long the lease lasts from now), fence (the lease's fencing
--      token), host, pid, user, label, hold (the holder's hold; 'base': the hold that took the lock), held (ms: how
--      long the holder has had the lease), entry (see take.lua), began (ms since 1970 by this server's clock: the
--      beginning of the run), once (given if the run has --once-per), labelled (see take.lua), tries (given if it
--      counts for --tries), run_id (of the server that answered gone; nil: INFO is refused), alone (given if this is
--      the only node), newest (see take.lua)
-- Answers: extended (left in ms, holds, node: uptime and run_id, see keys.lua), restarted (the server's run_id is not
--      ARG.run_id), higher (only with `alone`: the counter is larger than `fence`, because the node granted a later
--      lease, or force ended this lease), revoked (by: user@host), other (holders)
-- Cost: 21 calls.
-- include lease, log, tries
local who, _, run_id = node()
local left, was_here = tonumber(ARG.ttl), is_held_by(ARG.token)
if run_id ~= (ARG.run_id or '') then return answer_from_reads('restarted') end
if not was_here then
  if not is_vacant() then return answer_without_lease() end
  local slot, fence, held = ARG.slot, ARG.fence, tonumber(ARG.held) or 0
  local count = counter(slot)
  if ARG.alone and math.max(count, slot and counter() or counter('all')) > tonumber(fence) then
    return answer_from_reads('higher')
  end
  local mark = ARG.claim ~= 'exclusive' and ARG.claim .. '.' .. string.sub(redis.sha1hex(ARG.token), 1, 16)
  count = digits(math.max(count, fence))
  local list = list_member
  if mark then claim = ARG.claim end
  local since, began = digits(us - held * 1000), ARG.began or digits(now - held)
  if select(2, pcall(find_run, ARG.token)) then ARG.entry = nil end -- the server has forgotten the lease alone
  -- include grant
  if ARG.tries then pcall(count_try, began) end
  if ARG.newest then
    pcall(function()
      local superseded, raise_newest
      -- include newest
      raise_newest()
    end)
  end
  -- The lock may be reserved, for this holder or for a waiter. An exclusive lease leaves no room for that waiter, so
  -- the reservation is deleted. Beside a member the waiter may still fit, so its reservation stays.
  if not claim or redis.call('GET', R) == ARG.token then redis.call('DEL', R) end
end
local record = read_record(ARG.token)
if record.revoked then return answer_from_reads('revoked', {by = record.revoked}) end
if was_here then left = extend_lease(record) end
if ARG.hold and not claim then add_hold(ARG.hold) end
return answer('extended', {left = left, holds = count_holds(), node = who})

-- Gives a node that has forgotten it the lease that its holder still has. Counts like a grant. Asks neither the queue
-- nor the reservation: the holder goes before all that wait.
-- ARG: token, place, ttl (ms; recorded), fence, host, pid, user, label, hold ('base' took the lock), held (ms),
--      entry (see run.lua), run_id (of the node that said gone; nil: refused), alone (the only node)
-- Answers: extended (left, holds, node), restarted (another run than the one that was asked), higher (the only node,
--      and it has granted a later lease since), revoked (by), other (holders)
-- Cost: 19 calls.
local who, fence, left = node(), tonumber(ARG.fence), tonumber(ARG.ttl)
local was_here = is_held_by(ARG.token)
if who.run_id ~= (ARG.run_id or '') then return answer_from_reads('restarted') end
if not was_here then
  if not is_vacant() then return answer_without_lease() end
  local count = counter(ARG.place)
  if ARG.alone and math.max(count, ARG.place and counter() or counter('all')) > fence then return answer_from_reads('higher') end
  grant(ARG.fence, digits(math.max(count, fence)), ARG.place)
  remember_begin(ARG.fence, ARG.place)
  close_runs()
  -- The lock was promised to this holder, or to a waiter that has to go behind it; others may hold it beside a member.
  if not shape or redis.call('GET', R) == ARG.token then redis.call('DEL', R) end
end
local record = read_record(ARG.token)
if record.revoked then return answer_from_reads('revoked', {by = record.revoked}) end
if was_here then left = extend_lease(record) end
if ARG.hold and not shape then add_hold(ARG.hold) end
return answer('extended', {left = left, holds = count_holds(), node = flat(who)})

-- Releases a hold of a lease. The release of the last hold frees the lock. A copy of the request may arrive late, and
-- does no harm: it ends the same hold or nothing.
-- ARG: token, hold (the hold to end; nil: the hold that took the lock, if the key H is missing. If the key H exists,
--      nothing is released, and the answer names the newest hold), note (a key to write when the lease ends, for the
--      process that renews the lease; the key lasts as long as the lease would have lasted; nil: no note)
--      for the history: run (the run with its end, see log.lua; a failed run may have its errors in e; a release by
--      token has only an exit status, or nil: released), unused (given if nothing ran under the lease), final (given if
--      the client has judged how the run ended: then the end counts even if this node lacks the lease), run_id (the
--      node's run_id when the node last confirmed the lease; nil: never)
-- Answers: released, still-held (holds: how many are left), newest (hold: the newest hold; nothing was released),
--      gone, other (holders), both with known, and node: uptime and run_id, see keys.lua
--      known: what the log knows of the run: 'ended' (an end that a release has reported), 'known' (no end, or another
--      one: lost, revoked, expired), nil (nothing)
--      unnoted (why the success for --once-per could not be written), unwritten (why the rest could not be written)
-- Reads K, H and L; the release of an inner hold reads nothing else. Deletes K, L and H (for a member: its record and
-- its entries in M and P), calls the next waiter, and writes the history.
-- Cost: 9 calls if the line is empty.
-- include end
local ending = ARG.run and cjson.decode(ARG.run) or {o = 'released'}

-- The history gets the end of the run. Even if the log cannot be written, a success for --once-per is noted.
local function note_end()
  note('unwritten', end_run, ARG.token, ending)
  if notes.unwritten and ending.q and succeeded(ending) then note('unnoted', note_once, ARG.run, ending.f) end
end

-- The plain case: the lease is exclusive and has one hold, its job has ended by itself, and the line is empty.
local is_plain = value == ARG.token and ending.b and ending.o ~= 'lost' and not (ARG.note or ARG.unused) and (ARG.hold or 'base') == 'base'
if is_plain and redis.call('EXISTS', H, Q) == 0 then
  redis.call('DEL', K, L)
  note_end()
  local reply = {'outcome', 'released'}
  for name, why in pairs(notes) do reply[#reply + 1], reply[#reply + 2] = name, why end
  return reply
end

-- include line, lease
local is_held, hold = find_hold(ARG.token, ARG.hold)
local rest = ARG.note and math.max(is_held and until_end(ARG.token) or redis.call('PTTL', R), 1)

-- Writes the note ARG.note (nil: no note). The script must have made another write before, because a server that is out
-- of memory refuses only a script's first write.
local function leave_note()
  if ARG.note then redis.pcall('SET', ARG.note, '', 'PX', rest) end
end

-- This node has the lease. One hold ends. If no hold is left, the lease ends. If the hold that took the lock ends, the
-- run ends.
if is_held then
  local left = redis.call('ZCARD', H)
  if left > 0 then
    if not ARG.hold then return answer_from_reads('newest', {hold = redis.call('ZREVRANGE', H, 0, 0)[1]}) end
    if hold then redis.call('ZREM', H, hold) else hold = redis.call('ZPOPMAX', H)[1] end
    left = redis.call('ZCARD', H)
  elseif hold and hold ~= 'base' then
    return answer_from_reads('still-held', {holds = 1}) -- released before; only the outer hold is left
  end
  -- If the lease was revoked, the run's outcome becomes 'revoked' in two cases: redlock reports a loss, or a script
  -- with `acquire` releases by token. (Such a script was stopped, and its shell may still report status 0.)
  local is_unsure = ending.o == 'lost' or not ending.b
  local by = is_unsure and revoked_by(unpack(redis.call('HMGET', record_of(ARG.token), 'revoked', 'since')))
  if by then ending.o, ending.y, ending.x = 'revoked', by, nil end
  if left == 0 then
    drop(ARG.token)
    leave_note()
  end
  if not hold or hold == 'base' then
    if ARG.unused then note('unwritten', forget_run, ARG.token) else note_end() end
  end
  if left == 0 then hand_over() end
  notes.holds = left > 0 and left
  return answer(left > 0 and 'still-held' or 'released', notes)
end

-- This node does not have the lease. But after a restart, a waiter may have reserved the lock for its holder
-- (keep_for_holder in take.lua): then the release deletes the reservation. Otherwise it writes only the history.
local is_read, at, text = pcall(find_run, ARG.token)
local run, has_room = is_read and at and cjson.decode(text), is_vacant()
local is_outer = not ARG.hold or ARG.hold == 'base'
local is_promised = is_outer and (value == false or claim) and redis.call('GET', R) == ARG.token
if is_promised then redis.call('DEL', R) end
local who, _, run_id = node()
local is_forgotten = ending.b and not run and has_room and run_id ~= '' and run_id ~= ARG.run_id
if ARG.unused then
  note('unwritten', forget_run, ARG.token)
elseif ARG.final or is_forgotten then
  note_end()
elseif run and ending.x and not ending.b then -- a release by token, after the lease ran out, can only add the status
  ending.o = 'expired'
  note_end()
end
if is_promised then
  leave_note()
  hand_over()
  return answer('released', notes)
end
if run then
  local told = {['too-long'] = true, released = true}
  notes.known = (told[run.o] or not run.o and (run.x or run.s)) and 'ended' or 'known'
end
if not has_room then notes.node = who end
local reply = answer_without_lease()
for name, field in pairs(notes) do reply[#reply + 1], reply[#reply + 2] = name, field end
return reply

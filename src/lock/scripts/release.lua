-- Releases one hold of a lease, and frees the lock with the last one. May be repeated, and late: all copies name the
-- same hold, or none.
-- ARG: token, hold (nil: the one that took the lease; where there are others, nothing is released, and the newest
--      told), keep (how long the lock stays taken, ms; a late copy does not prolong that), note (nil: none; the key
--      that tells the process that renews the lease, for as long as that would have lasted, that it was released)
--      for the memory: outcome (nil: released), code, ended (ms ago), gone (the outcome if the lease is not here; nil:
--      not known), told (that takes the place of the end that this node was told)
--      the run, for a server that has restarted without it: run_id (of the server, when it last confirmed the lease),
--      began (ms ago), fence, slot, entry (see run.lua; nil: no memory)
-- Answers: released, still-held (holds), newest (hold), gone (node, known), other (holders, known); known: see told_end
-- Reads K, H, of the holds of another job no more; frees K, L, H (of a member M, P and its record), calls the next, and
-- writes the memory.
-- Cost: 13 calls where nobody waits, 8 of them for the memory, and 2 more where its log is full.
local is_held, hold = find_hold(ARG.token, ARG.hold)
local keep = tonumber(ARG.keep)
local rest = ARG.note and math.max(is_held and until_end(ARG.token) or redis.call('PTTL', R), 1)

-- Behind another write: a server out of memory refuses it otherwise.
local function leave_note()
  if ARG.note then redis.pcall('SET', ARG.note, '', 'PX', rest) end
end

-- Takes the hold from the lease, which is here, and ends that with the last one. `note` writes the end of its run.
local function release_hold(note)
  local left = redis.call('ZCARD', H)
  if left > 0 then
    if not ARG.hold then return answer_from_reads('newest', {hold = redis.call('ZREVRANGE', H, 0, 0)[1]}) end
    if hold then redis.call('ZREM', H, hold) else hold = redis.call('ZPOPMAX', H)[1] end
    left = redis.call('ZCARD', H)
  elseif hold and hold ~= 'base' then
    return answer_from_reads('still-held', {holds = 1}) -- released before; the outer hold is all that is left
  end
  if not hold or hold == 'base' then
    -- Of a lease of acquire too: a shell whose script is stopped may tell status 0.
    local is_unsure = ARG.outcome == 'lost' or not ARG.began
    local by = is_unsure and revoked_by(unpack(redis.call('HMGET', record_of(ARG.token), 'revoked', 'since')))
    note(ARG.token, by and 'revoked' or ARG.gone or ARG.outcome or 'released', ARG.code, by)
  end
  if left > 0 then return answer('still-held', {holds = left}) end
  if keep then
    -- The expiry first, then the note: a server out of memory refuses only a script's first write.
    if read_record(ARG.token).kept and until_end(ARG.token) <= keep then return answer('released') end
    if shape then members.expire(ARG.token, keep) else redis.call('PEXPIRE', K, keep) end
    redis.pcall('HSET', record_of(ARG.token), 'kept', server_us())
    if shape then redis.pcall('HSET', L, 'some_kept', 1) else redis.call('PEXPIRE', L, keep) end
  else
    drop(ARG.token)
    leave_note()
    hand_over()
  end
  return answer('released')
end

-- The rest is in late.lua.
if is_held and not ARG.gone then return release_hold(remember_end) end

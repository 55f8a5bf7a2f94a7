-- Releases a hold of a lease. The release of the last hold frees the lock. A copy of the request may arrive late, and
-- does no harm: the copy ends the same hold or nothing.
-- ARG: token, hold (the hold to end; nil: the hold that took the lock, if the key H is missing. If the key H exists,
--      nothing is released, and the answer tells the newest hold), note (a key to write when the lease ends, for the
--      process that renews the lease; the key lasts as long as the lease would have lasted; nil: no note)
--      for the memory: outcome (how the run ended; nil: released), code (exit status or signal), ended (how many ms ago
--      the job ended; nil: now), gone (the outcome to note if this node lacks the lease; nil: the client does not know
--      yet whether the lease is lost), once (given if the job of a run with --once-per has succeeded), errors (of a
--      failed run: an object with the last lines of the job's standard error)
--      not for a release by token: began (how many ms ago the run began), entry (the run without its beginning; nil: no
--      memory), run_id (the node's run_id when the node last confirmed the lease)
-- Answers: released, still-held (holds: how many are left), newest (hold: the newest hold; nothing was released),
--      gone (node: uptime and run_id, see keys.lua; known), other (holders, known)
--      known: what the memory knows of the run, see told_end
--      unnoted (why `once` could not be written), unwritten (why the rest of the memory could not be written)
-- Reads K, H and L; the release of an inner hold reads nothing else. Deletes K, L and H (for a member: its record and
-- its entries in M and P), calls the next waiter, and writes the memory.
-- Cost: 11 calls if the line is empty: 7 of these are for the memory. If the log is full, 2 more calls follow.
-- include end

-- The plain case: the lease is exclusive and has one hold, its job has ended, no rare argument is given, and the line
-- is empty.
local is_plain = value == ARG.token and ARG.began and (ARG.outcome == 'exited' or ARG.outcome == 'signaled')
  and not (ARG.gone or ARG.note or ARG.once or ARG.errors) and (ARG.hold or 'base') == 'base'
if is_plain and redis.call('EXISTS', H, Q) == 0 then
  redis.call('DEL', K, L)
  local run, reply = redis.pcall('HGET', OPEN, ARG.token), {'outcome', 'released'}
  local done, why = true, run
  if type(run) == 'string' then
    local duration = ARG.ended and ARG.began - ARG.ended or ARG.began
    done, why = pcall(end_run, ARG.token, run, duration, ARG.outcome, ARG.code)
  end
  if not done or type(run) == 'table' then reply[3], reply[4] = 'unwritten', type(why) == 'table' and why.err or why end
  return reply
end

-- include line, lease, memory
local AGAIN_MS = 5000 -- how long a release is sent again
local is_held, hold = find_hold(ARG.token, ARG.hold)
local beside = claim
local rest = ARG.note and math.max(is_held and until_end(ARG.token) or redis.call('PTTL', R), 1)
local unnoted, unwritten

-- Calls the function `write`, which writes into the memory. Returns the server's error if the write fails, else nil.
local function failure_of(write, ...)
  local done, why = pcall(write, ...)
  if not done then return why end
end

-- The run as the release tells it: ARG.entry, and before it the time at which the run began, ARG.began ms ago.
local function told_run()
  return '{"b":"' .. digits(now - ARG.began) .. '",' .. string.sub(ARG.entry, 2)
end

-- Notes that a run with --once-per has succeeded, or has lost its lease. RUNS keeps the notes of the two runs with the
-- largest fencing tokens: `once` has the largest, `once_before` the second. (The times at which the runs began are no
-- good order: in a late copy of a release, the run seems to have begun later.) A success never replaces a noted loss: a
-- late copy of the release may still report a success. (tests/model/once.rs)
local function note_once()
  local is_loss, known = ARG.gone == 'lost', redis.call('HMGET', RUNS, 'once', 'once_before')
  local run = with_end(told_run(), ARG.began - (ARG.ended or 0), is_loss and 'lost' or 'exited', ARG.code)
  for i, field in ipairs({'once', 'once_before'}) do
    if known[i] and string.find(known[i], '"t":"' .. ARG.token .. '"', 1, true) then
      if is_loss then redis.call('HSET', RUNS, field, run) end
      return
    end
  end
  local fence = number_of(run, 'f')
  if fence > (number_of(known[1] or '', 'f') or 0) then
    redis.call('HSET', RUNS, 'once', run, known[1] and 'once_before' or 'once', known[1] or run)
  elseif fence > (number_of(known[2] or '', 'f') or 0) then
    redis.call('HSET', RUNS, 'once_before', run)
  end
  redis.call('PEXPIRE', RUNS, LOG_MS)
end

-- Writes the note ARG.note (nil: no note). The script must have made another write before: a server that is out of
-- memory refuses only a script's first write.
local function leave_note()
  if ARG.note then redis.pcall('SET', ARG.note, '', 'PX', rest) end
end

local function has_text(run, text)
  return string.find(run, text, 1, true) ~= nil
end

-- True if the run has an outcome. A run whose lease ran out without a release has no outcome.
local function has_outcome(run)
  return has_text(run, ',"x":"') or has_text(run, ',"s":"') or has_text(run, ',"o":"')
end

-- True if a release has told how the run ended. A run with the outcome 'lost', 'revoked' or 'expired' does not count.
local function is_told(run)
  if not has_text(run, ',"o":"') then return has_outcome(run) end
  return has_text(run, ',"o":"too-long"') or has_text(run, ',"o":"released"')
end

-- Searches the SEARCHED newest runs of the log for the run of this token. Returns the run's position in the log, and
-- the run. Returns nothing if the run is not there.
local function find_logged(token)
  for at, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
    if string.find(run, '"t":"' .. token .. '"', 1, true) then return at - 1, run end
  end
end

-- True if find_logged may have missed the run of this release, which ended ARG.ended ms ago. Two things must be true:
-- the log was cut or has at least SEARCHED runs, and all the searched runs ended later than this run. (The run may have
-- ended up to AGAIN_MS earlier than ARG.ended says: the release may have waited for the server.)
local function is_cut_behind()
  local oldest = redis.call('LINDEX', LOG, SEARCHED - 1)
  if not oldest and redis.call('HEXISTS', RUNS, 'cut') == 1 then oldest = redis.call('LINDEX', LOG, -1) end
  return oldest and ended_at(oldest) > now - (tonumber(ARG.ended) or 0) - AGAIN_MS
end

-- What the memory knows of the run of this token:
-- 'ended'   the log has the run, with an end that a release has told (is_told)
-- 'known'   the run goes on, or the log has the run with another end
-- 'unsure'  the memory may have forgotten the run, or cannot be read
-- nil       the memory has never had the run
local function told_end(token)
  local ok, known = pcall(function()
    if redis.call('HEXISTS', OPEN, token) == 1 then return 'known' end
    local _, run = find_logged(token)
    if run then return is_told(run) and 'ended' or 'known' end
    return is_cut_behind() and 'unsure' or nil
  end)
  return ok and known or not ok and 'unsure' or nil
end

-- Writes the end of this token's run, if this node lacks the lease, or a loss was reported. If the log has an outcome
-- of the run, nothing changes. Otherwise the outcome becomes `word` (with `code`), or 'revoked' if force ended the
-- lease. `by`: the user who revoked the lease (nil: nobody). `late`: the lease ran out before the release. The outcome
-- then becomes 'expired', and `code`, the exit status, is noted.
local function correct_end(token, word, code, by, late)
  local deadline = tonumber(redis.call('ZSCORE', ENDS, token) or nil)
  local run, at = redis.call('HGET', OPEN, token), nil
  if word == 'unused' then return end_open_run(token, word) end
  if not run then
    at, run = find_logged(token)
    if run and has_outcome(run) then return end
  end
  if not run then return end
  local forced = not late and last_force()
  local ended = late and (at and ended_at(run) or math.min(deadline or math.huge, now)) or end_by(forced, run, deadline)
  if late then
    word = 'expired'
  elseif ended then
    word, code, by = 'revoked', nil, forced.y
  end
  local told_ms = tonumber(ARG.ended) or 0
  local duration = ended and ended - began_at(run) or ARG.began and ARG.began - told_ms or now - told_ms - began_at(run)
  end_run(token, run, duration, word, code, by and signature(by), sorted_at(at))
end

-- Writes the run of ARG.token with the outcome `word`, if the server has forgotten the run in a restart. The arguments
-- of the release tell the whole run.
local function remember_forgotten(word)
  if ARG.entry and word ~= 'unused' then
    end_run(ARG.token, told_run(), ARG.began - (ARG.ended or 0), word, ARG.code, nil, sorted_at())
  end
end

-- Keeps the last lines of the job's standard error, for the 10 newest failures. A repeated release adds nothing.
local function keep_errors()
  local errors, front = BASE .. 'errors', '{"t":"' .. ARG.token .. '"'
  for _, kept in ipairs(redis.call('LRANGE', errors, 0, -1)) do
    if string.sub(kept, 1, #front) == front then return end
  end
  redis.call('LPUSH', errors, ARG.errors)
  redis.call('LTRIM', errors, 0, 9)
  redis.call('PEXPIRE', errors, LOG_MS)
end

-- Writes three things into the memory: a success for --once-per, the end of the run, and the errors of the job. `write`
-- is the function that writes the end of the run; the further arguments are for `write`.
local function remember(write, ...)
  unnoted = ARG.once and failure_of(note_once)
  unwritten = failure_of(write, ...) or ARG.errors and failure_of(keep_errors)
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
  local is_unsure = ARG.outcome == 'lost' or not ARG.began
  local by = is_unsure and revoked_by(unpack(redis.call('HMGET', record_of(ARG.token), 'revoked', 'since')))
  if left == 0 then
    drop(ARG.token)
    leave_note()
  end
  if not hold or hold == 'base' then
    local word = by and 'revoked' or ARG.gone or ARG.outcome or 'released'
    if ARG.gone then -- the loss was told, but the lease is here again
      remember(correct_end, ARG.token, word, ARG.code, by)
    else
      remember(end_open_run, ARG.token, word, ARG.code, by, beside)
    end
  end
  if left == 0 then hand_over() end
  local fields = {holds = left > 0 and left, unnoted = unnoted, unwritten = unwritten}
  return answer(left > 0 and 'still-held' or 'released', fields)
end

-- This node does not have the lease. But after a restart, a waiter may have reserved the lock for the lease's holder
-- (keep_for_holder in take.lua): then the release deletes the reservation. Without such a reservation, the release
-- changes only the memory.
local known, has_room = told_end(ARG.token), is_vacant()
local is_outer = not ARG.hold or ARG.hold == 'base'
local is_promised = is_outer and (value == false or claim) and redis.call('GET', R) == ARG.token
local reply = {'outcome', 'released'}
if is_promised then redis.call('DEL', R) else reply = answer_without_lease() end
-- The client tells a loss in ARG.gone, since the client has asked all nodes. This node alone cannot know of a loss.
local _, _, run_id = node()
if not known and ARG.run_id and (ARG.gone or has_room) and run_id ~= '' and run_id ~= ARG.run_id then
  remember(remember_forgotten, ARG.gone or ARG.outcome or 'unused')
elseif ARG.gone then
  remember(correct_end, ARG.token, ARG.gone, ARG.code)
elseif ARG.code and not ARG.began then -- a release by token; the run itself tells its end later
  remember(correct_end, ARG.token, nil, ARG.code, nil, true)
elseif ARG.once then
  unnoted = failure_of(note_once)
end
if is_promised then
  leave_note()
  hand_over()
end
local function add(name, field)
  if field then reply[#reply + 1], reply[#reply + 2] = name, field end
end
add('known', not is_promised and known)
add('unnoted', unnoted)
add('unwritten', unwritten)
return reply

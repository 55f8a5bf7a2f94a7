-- Stands behind close.lua in release.lua: the end of a run whose lease is not here.
local AGAIN_MS = 5000 -- a release is sent again for so long

-- True if more is known of the end of the run than that its lease ran out.
local function has_outcome(run)
  return has_ended(run, ',"x":"') or has_ended(run, ',"s":"') or has_ended(run, ',"o":"')
end

-- True if the end of the run is one that its release has told.
local function is_told(run)
  if not has_ended(run, ',"o":"') then return has_outcome(run) end
  return has_ended(run, ',"o":"too-long"') or has_ended(run, ',"o":"released"')
end

-- Takes back the end that was told for this run of the log, which is not true: it no longer counts, and the last
-- success or failure is a run before it.
local function discount(told)
  local result = result_of(told)
  if result then redis.call('HINCRBY', RUNS, result == 'success' and 'succeeded' or 'failed', '-1') end
  local fields = {}
  for i, run in ipairs(redis.call('HMGET', RUNS, 'success', 'failure', 'once')) do
    if run == told then fields[#fields + 1] = ({'success', 'failure', 'once'})[i] end
  end
  if #fields == 0 then return end
  redis.call('HDEL', RUNS, unpack(fields))
  for _, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
    local other = run ~= told and has_outcome(run) and result_of(run)
    if other then keep_last(run, other) end
  end
end

-- Where in the newest of the log the run of this token is, and the run.
local function find_logged(token)
  for at, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
    if string.find(run, '"t":"' .. token .. '"', 1, true) then return at - 1, run end
  end
end

-- True if the log may have had a run that ended ARG.ended ms ago: it was cut, and what is left of it ended later. A
-- release may arrive up to AGAIN_MS after it was first sent, with the same ARG.ended.
local function is_cut_behind()
  local oldest = redis.call('LINDEX', LOG, SEARCHED - 1)
  if not oldest and redis.call('HEXISTS', RUNS, 'cut') == 1 then oldest = redis.call('LINDEX', LOG, -1) end
  return oldest and ended_at(oldest) > server_ms() - (tonumber(ARG.ended) or 0) - AGAIN_MS
end

-- What the memory knows of the run of this token, nil if nothing: 'ended' if a release has told its end, 'known' if it
-- goes on, was lost or was revoked, 'unsure' if it may have been forgotten, or cannot be read.
local function told_end(token)
  local ok, known = pcall(function()
    if redis.call('HEXISTS', OPEN, token) == 1 then return 'known' end
    local _, run = find_logged(token)
    if run then return is_told(run) and 'ended' or 'known' end
    return is_cut_behind() and 'unsure' or nil
  end)
  return ok and known or not ok and 'unsure' or nil
end

-- Writes the end of a run whose lease is not here, or was lost. A run that a later grant has closed without an outcome
-- gets this outcome; only its status, if the caller released a lease that had run out (`late`). A loss that a quorum of
-- the nodes knows replaces the end that this node was told.
local function correct_end(token, word, code, by, late)
  pcall(function()
    local deadline = tonumber((late or ARG.gone) and redis.call('ZSCORE', ENDS, token) or nil)
    local run, at = take_open(token), nil
    if word == 'unused' then return end
    if not run and (late or ARG.gone) then
      at, run = find_logged(token)
      if run and ARG.told and is_told(run) then
        discount(run)
      elseif run and has_outcome(run) then
        run = nil
      end
    end
    if not run then return end
    local ended, outcome
    if late then
      ended = at and ended_at(run) or math.min(deadline or math.huge, server_ms())
      outcome = outcome_of('expired') .. outcome_of('exited', code)
    elseif ARG.gone then
      ended, outcome = end_by(last_force(), run, deadline)
    end
    log_end(run, ended or end_of(run), outcome or outcome_of(word, code, by), at)
  end)
end

-- The run of this lease, which the server has forgotten in a restart, as its release tells it whole.
local function remember_forgotten()
  local word = ARG.gone or ARG.outcome or 'unused'
  pcall(function()
    if server_ms() == 0 or not ARG.entry or word == 'unused' then return end
    local run = new_run(digits(server_ms() - ARG.began), ARG.fence, ARG.slot)
    log_end(run, end_of(run), outcome_of(word, ARG.code))
  end)
end

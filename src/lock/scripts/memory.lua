-- needs end
-- Ends runs in the special cases: other runs may have ended later, no release came, or force ended the leases.
local SEARCHED = 200 -- how many of the newest runs of the log are searched

-- The number in the field `name` of a run; nil if the field is missing or has no number.
local function number_of(run, name)
  local _, last = string.find(run, '"' .. name .. '":"', 1, true)
  return last and tonumber(string.match(run, '^%d+', last + 1))
end

-- The time (ms since 1970) at which the run began; 0 if the run does not tell it.
local function began_at(run)
  return number_of(run, 'b') or 0
end

-- The time (ms since 1970) at which the run ended.
local function ended_at(run)
  return began_at(run) + (number_of(run, 'd') or 0)
end

-- A revoker's name in the form for a run: at most 100 characters, and `?` for a control character. nil for no name.
local function signature(text)
  local count = 0
  for at in string.gmatch(text, '()[^\128-\191]') do
    count = count + 1
    if count > 100 then text = string.sub(text, 1, at - 1) break end
  end
  text = string.gsub(text, '%c', '?')
  return text ~= '' and text or nil
end

-- Prepares the writing of `runs`, which have ended. `first`: the earliest of their ends (ms). `at`: the position in the
-- log of a run to replace (nil: none). Takes out of the log each run that ended after `first`, and all runs from the
-- front up to the position `at`. Returns the runs to write, in the order of their ends: `runs`, and the runs taken out
-- except the replaced run.
local function taken_out(runs, first, at)
  local newest = redis.call('LINDEX', LOG, 0)
  if not at and #runs == 1 and not (newest and ended_at(newest) > first) then return runs end
  local taken, ends = 0, {}
  for i, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
    if i - 1 > (at or -1) and ended_at(run) <= first then break end
    if i - 1 ~= at then runs[#runs + 1] = run end
    taken = i
  end
  redis.call('LTRIM', LOG, taken, -1)
  for _, run in ipairs(runs) do ends[run] = ended_at(run) end
  table.sort(runs, function(one, other) return ends[one] < ends[other] end)
  return runs
end

-- True if this run has to replace the last success or failure in RUNS (`result` says which of the two). The run in RUNS
-- must not have ended later than this run, or must have ended in the future (the clock was set back).
local function is_newer(run, result)
  local known = ended_at(redis.call('HGET', RUNS, result) or '')
  return known <= ended_at(run) or known > now
end

-- Returns a function for the argument `sorted` of end_run, for a run beside which other runs may have ended later.
-- `at`: the position of this run in the log (nil: the log does not have this run yet).
local function sorted_at(at)
  return function(run, most, result)
    return taken_out({run}, ended_at(run), at), at and math.huge or most, result and is_newer(run, result)
  end
end

-- Ends the open run of this token, with the outcome `word`. If nothing ran under the lease ('unused'), deletes the run.
-- `by`: the user who revoked the lease (nil: nobody). `beside`: not nil if members had the lock, so that other runs may
-- have ended later. The run ended ARG.ended ms ago. It began ARG.began ms ago by redlock's clock. Without ARG.began,
-- the server's clock tells the duration. redlock's clock is better: the request may have waited for the server, and the
-- server's clock may have been changed.
local function end_open_run(token, word, code, by, beside)
  local run = redis.call('HGET', OPEN, token)
  if not run or word == 'unused' then
    redis.call('HDEL', OPEN, token)
    redis.call('ZREM', ENDS, token)
    return
  end
  local ended = tonumber(ARG.ended) or 0
  local duration = ARG.began and ARG.began - ended or now - ended - began_at(run)
  end_run(token, run, duration, word, code, by and signature(by), beside and sorted_at())
end

-- The last `release --force` that ended the leases of all members: b is its time (ms), y is its user@host. false if
-- there was none.
local function last_force()
  local forced = redis.call('HGET', RUNS, 'forced')
  return forced and cjson.decode(forced)
end

-- The time (ms) at which `release --force` ended this run; nil if no `release --force` ended this run. `forced`: the
-- result of last_force. That call ended the run if it came after the run's beginning, and not after `deadline`, the end
-- of the run's lease (nil: not known).
local function end_by(forced, run, deadline)
  local at = forced and tonumber(forced.b)
  if at and at <= now and began_at(run) <= at and (deadline or at) >= at then return at end
end

-- Closes the open runs that ended without a release: moves them from OPEN into the log. After the grant of an exclusive
-- lease these are all open runs except the run of ARG.token. After the grant of a member's lease these are the runs
-- whose lease has run out. A closed run counts neither as a success nor as a failure. Of many such runs only the newest
-- are read and written: at most one more than the log keeps.
local function close_runs()
  pcall(function()
    local tokens, deadlines = {}, {}
    local over = claim and redis.call('ZRANGE', ENDS, '-inf', ms, 'BYSCORE', 'WITHSCORES')
      or redis.call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
    for i = 1, #over, 2 do
      if over[i] ~= ARG.token then tokens[#tokens + 1], deadlines[#tokens + 1] = over[i], over[i + 1] end
    end
    if #tokens == 0 then return end
    local most = most_of(ARG.entry or redis.call('HGET', OPEN, tokens[#tokens]) or '')
    local from = math.max(#tokens - most, 1) -- one run more than the log keeps, so that push cuts the log
    local runs, closed, first, forced = redis.call('HMGET', OPEN, unpack(tokens, from)), {}, math.huge, last_force()
    for i = 1, #tokens, UNPACKED do
      local last = math.min(i + UNPACKED - 1, #tokens)
      redis.call('HDEL', OPEN, unpack(tokens, i, last))
      redis.call('ZREM', ENDS, unpack(tokens, i, last))
    end
    for i, run in ipairs(runs) do
      if run then
        local ended = math.min(deadlines[from + i - 1], now)
        local at = end_by(forced, run, ended)
        closed[#closed + 1] = with_end(run, (at or ended) - began_at(run), at and 'revoked', nil, at and forced.y)
        first = math.min(first, at or ended)
      end
    end
    if #closed > 0 then push(taken_out(closed, first), most) end
  end)
end

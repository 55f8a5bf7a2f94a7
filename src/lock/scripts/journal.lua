-- Stands behind record.lua in what begins or ends runs: the only writer of a lock's memory (its only reader is runs.lua). It must
-- never fail a grant or a release, so it is called last there, by pcall. What cannot be written is forgotten.
-- Keys, which are named here, as a longer request would not be read to its end; all last for FENCE_MS after the last write:
--   open (hash: token -> run that has not ended), ends (sorted set: token -> deadline of its lease in ms, for each in open),
--   log (list: the last runs that have ended, the last to end in front),
--   runs (hash: success, failure: of the runs that were told as one, the one that ended last; once: of the successes with
--     --once-per, the one that began last; succeeded, failed: how many were told; kept: to how many the log was cut last;
--     forced: an object whose y and b say who freed the lock for all its holders, and when)
-- A run is a JSON object of texts: t token, h host, p pid, u user, l label, b began (ms), w waited (ms), f fence, i place,
-- q if it had --once-per, n how many runs to keep (only in open, and not if 20); with its end: d duration (ms), and as outcome x
-- (exit status) or s (signal) or o (another one); none of them: its lease ran out. y is the signature of a revocation.
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'
local SEARCHED = 200 -- so many of the newest are looked through for a run that ended without a word
local CLOSED = 100   -- so many of those that have ended without a word are closed by one grant
local AGAIN_MS = 5000 -- a release is said again for so long

-- So many characters of a text, without control characters; nil if that leaves none.
local function short(text, most)
  local count = 0
  for at in string.gmatch(#text > most and text or '', '()[^\128-\191]') do
    count = count + 1
    if count > most then text = string.sub(text, 1, at - 1) break end
  end
  return text ~= '' and string.gsub(text, '%c', '?') or nil
end

-- The run of this grant.
local function new_run(fence, place, began)
  return {t = ARG.token, h = short(ARG.host, 60), p = ARG.pid, u = short(ARG.user, 32), l = short(ARG.label, 40), b = digits(began),
    w = ARG.waited ~= '0' and ARG.waited or nil, f = fence, i = place and digits(place), q = ARG.once and '1',
    n = ARG.log ~= '20' and ARG.log or nil}
end

-- A run that has ended, as it stands in the log.
local function line_of(run)
  run.n = nil
  return cjson.encode(run)
end

-- When the run in this line began (ms).
local function began_at(line)
  return tonumber(string.match(line, '"b":"(%d+)"')) or 0
end

-- When it ended.
local function ended_at(line)
  return began_at(line) + (tonumber(string.match(line, '"d":"(%d+)"')) or 0)
end

-- Takes the newest runs out of the log: those that ended after this time (ms), and all up to that at `at`. Returns the others.
local function take_newest(ended, at)
  local taken, others = 0, {}
  for i, line in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
    if i - 1 > (at or -1) and ended_at(line) <= ended then break end
    if i - 1 ~= at then others[#others + 1] = line end
    taken = i
  end
  redis.call('LTRIM', LOG, taken, -1)
  return others
end

-- Puts runs that have ended into the log, which keeps so many. One of them may be there already, at `at`, with another end.
local function push(lines, most, at)
  local ends, first, newest = {}, math.huge, redis.call('LINDEX', LOG, 0)
  for _, line in ipairs(lines) do first = math.min(first, ended_at(line)) end
  if at or newest and ended_at(newest) > first then
    for _, line in ipairs(take_newest(first, at)) do lines[#lines + 1] = line end
    for _, line in ipairs(lines) do ends[line] = ended_at(line) end
    table.sort(lines, function(one, other) return ends[one] < ends[other] end)
  end
  if redis.call('LPUSH', LOG, unpack(lines)) > most then
    redis.call('LTRIM', LOG, 0, most - 1)
    redis.call('HSET', RUNS, 'kept', most)
    redis.call('PEXPIRE', RUNS, FENCE_MS)
  end
  redis.call('PEXPIRE', LOG, FENCE_MS)
end

-- True if this run, whose end is told now, is to take the place of the one in `runs`, which ended (once: began) earlier, or by a
-- clock that was set back since.
local function is_newer(line, field)
  local time = field == 'once' and began_at or ended_at
  local known = time(redis.call('HGET', RUNS, field) or '')
  return known <= time(line) or known > server_ms()
end

-- True if the end of the run is one that its release has told.
local function is_told(run)
  return not run.o and (run.x or run.s) or run.o == 'too-long' or run.o == 'released'
end

-- Keeps a run whose end is known, if it is the last success or failure. Returns how it counts, nil if it does not.
local function keep_last(run, line)
  local success = run.x == '0' and not run.o
  if not success and (run.o == 'released' or run.o == 'expired') then return end
  local result = success and 'success' or 'failure'
  -- One that ends now is the last, and needs no look.
  if run.b + run.d >= server_ms() or is_newer(line, result) then redis.call('HSET', RUNS, result, line) end
  if success and run.q and is_newer(line, 'once') then redis.call('HSET', RUNS, 'once', line) end
  return success and 'succeeded' or 'failed'
end

-- Counts a run whose end is known.
local function count_end(run, line)
  local result = keep_last(run, line)
  if not result then return end
  redis.call('HINCRBY', RUNS, result, 1)
  redis.call('PEXPIRE', RUNS, FENCE_MS)
end

-- The end that was told for this run of the log is not true: neither does it count, nor is it the last; that is one before it.
local function discount(run, told)
  if run.o ~= 'released' then redis.call('HINCRBY', RUNS, run.x == '0' and 'succeeded' or 'failed', -1) end
  local fields = {}
  for i, line in ipairs(redis.call('HMGET', RUNS, 'success', 'failure', 'once')) do
    if line == told then fields[#fields + 1] = ({'success', 'failure', 'once'})[i] end
  end
  if #fields == 0 then return end
  redis.call('HDEL', RUNS, unpack(fields))
  for _, line in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
    local ok, other = pcall(cjson.decode, line)
    if ok and line ~= told and (other.x or other.s or other.o) then keep_last(other, line) end
  end
end

-- Where in the newest of the log the run of this token is, the run, and its line.
local function find_logged(token)
  for at, line in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
    if string.find(line, '"t":"' .. token .. '"', 1, true) then return at - 1, cjson.decode(line), line end
  end
end

-- True if the log may have had a run that ended ARG.ended ms ago: it was cut, and what is left of it ended later. That age may be
-- as old as a release that is said again.
local function is_cut_behind()
  local oldest = redis.call('LINDEX', LOG, SEARCHED - 1)
  if not oldest and redis.call('HEXISTS', RUNS, 'kept') == 1 then oldest = redis.call('LINDEX', LOG, -1) end
  return oldest and ended_at(oldest) > server_ms() - (tonumber(ARG.ended) or 0) - AGAIN_MS
end

-- What the memory knows of the run of this token, nil if nothing: 'ended' if a release has told its end, 'known' if it goes on, was
-- lost or was revoked, 'unsure' if it may have been forgotten, or cannot be read.
local function told_end(token)
  local ok, known = pcall(function()
    if redis.call('HEXISTS', OPEN, token) == 1 then return 'known' end
    local _, run = find_logged(token)
    if run then return is_told(run) and 'ended' or 'known' end
    return is_cut_behind() and 'unsure' or nil
  end)
  return ok and known or not ok and 'unsure' or nil
end

-- Takes runs out of those that go on, and returns them.
local function take_open(tokens)
  local lines, runs = redis.call('HMGET', OPEN, unpack(tokens)), {}
  redis.call('HDEL', OPEN, unpack(tokens))
  redis.call('ZREM', ENDS, unpack(tokens))
  for i, line in ipairs(lines) do
    local ok, run = pcall(cjson.decode, line)
    runs[i] = ok and run
  end
  return runs
end

-- Writes into a run that it has ended then (ms).
local function set_time(run, ended)
  run.d = digits(math.max(ended - run.b, 0))
end

-- Writes into a run how it has ended.
local function set_end(run, outcome, code, by, ended)
  set_time(run, ended)
  run.x, run.s, run.o = nil, nil, nil
  if outcome == 'exited' then run.x = code elseif outcome == 'signaled' then run.s = code else run.o = outcome end
  run.y = by and short(by, 100) or nil
end

-- Who has freed the lock for all its holders, and when, if that was done.
local function last_force()
  local forced = redis.call('HGET', RUNS, 'forced')
  return forced and cjson.decode(forced)
end

-- True if the lease of the run, which would have lasted until then, was alive at that time; then it has ended by that.
local function is_forced(run, forced, deadline)
  local at = forced and tonumber(forced.b)
  if not at or at > server_ms() or tonumber(run.b) > at or (deadline or at) < at then return false end
  set_end(run, 'revoked', nil, forced.y, forced.b)
  return true
end

-- When the job of this run has ended: as long after its beginning as its redlock says, since the request may have waited for the
-- server, and the server's clock may have been changed; else ARG.ended ms ago.
local function end_of(run)
  local ended = tonumber(ARG.ended) or 0
  return ARG.began and run.b + math.max(ARG.began - ended, 0) or server_ms() - ended
end

-- The run of this token has ended. An unused lease leaves nothing. What a later grant has closed without an
-- outcome gets this one; only its status, if that comes from who has released a lease that had run out (`late`). A loss that a
-- quorum of the nodes knows takes the place of the end that this one was told.
local function note_end(token, outcome, code, by, late)
  pcall(function()
    local deadline = tonumber((late or ARG.gone) and redis.call('ZSCORE', ENDS, token) or nil)
    local run, at = take_open({token})[1], nil
    if outcome == 'unused' then return end
    if not run and (late or ARG.gone) then
      local line
      at, run, line = find_logged(token)
      if run and ARG.gone == 'lost' and is_told(run) then
        discount(run, line)
      elseif run and (run.x or run.s or run.o) then
        run = nil
      end
    end
    if not run then return end
    local most = tonumber(run.n) or 20
    if late then
      if not run.d then set_time(run, math.min(deadline or math.huge, server_ms())) end
      run.o, run.x = 'expired', code
    elseif not (ARG.gone and is_forced(run, last_force(), deadline)) then
      set_end(run, outcome, code, by, end_of(run))
    end
    local line = line_of(run)
    push({line}, at and math.huge or most, at)
    count_end(run, line)
  end)
end

-- The run of this lease, which the server has forgotten in a restart, as its release tells it whole.
local function note_forgotten()
  local outcome = ARG.gone or ARG.outcome or 'unused'
  pcall(function()
    if server_ms() == 0 or not ARG.log or outcome == 'unused' then return end
    local run = new_run(ARG.fence, ARG.slot, server_ms() - ARG.began)
    local most = tonumber(run.n) or 20
    set_end(run, outcome, ARG.code, nil, end_of(run))
    local line = line_of(run)
    push({line}, most)
    count_end(run, line)
  end)
end

-- Closes the runs that have ended without a word: of an exclusive lock all others, else those whose lease has run out.
local function close_runs()
  local now = digits(server_ms())
  local over = shape and redis.call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'LIMIT', 0, CLOSED, 'WITHSCORES')
    or redis.call('ZRANGE', ENDS, 0, CLOSED - 1, 'WITHSCORES')
  local tokens, ends = {}, {}
  for i = 1, #over, 2 do
    if over[i] ~= ARG.token then
      tokens[#tokens + 1], ends[#ends + 1] = over[i], math.min(over[i + 1], now)
    end
  end
  if #tokens == 0 then return end
  local closed, most, forced = {}, tonumber(ARG.log), last_force()
  for i, run in ipairs(take_open(tokens)) do
    if run then
      set_time(run, ends[i])
      local is_counted = is_forced(run, forced, ends[i])
      most = most or tonumber(run.n) or 20
      closed[#closed + 1] = line_of(run)
      if is_counted then count_end(run, closed[#closed]) end
    end
  end
  if #closed > 0 then push(closed, most) end
end

-- A lease has begun, for ARG.ttl. Without a clock there is no memory.
local function note_begin(fence, place)
  pcall(function()
    if server_ms() == 0 then return end
    close_runs()
    if not ARG.log then return end
    redis.call('HSET', OPEN, ARG.token, cjson.encode(new_run(fence, place, server_ms() - (tonumber(ARG.held) or 0))))
    redis.call('ZADD', ENDS, digits(server_ms() + ARG.ttl), ARG.token)
    redis.call('PEXPIRE', OPEN, FENCE_MS)
    redis.call('PEXPIRE', ENDS, FENCE_MS)
  end)
end

-- The last success that had --once-per too, if it began less than ARG.once ms ago. By a clock that was set back since, it may
-- be in the future: by up to as much it counts.
local function recent_success()
  local run = redis.call('HGET', RUNS, 'once')
  local began = run and tonumber(string.match(run, '"b":"(%d+)"'))
  return began and math.abs(server_ms() - began) < tonumber(ARG.once) and {success = run, clock = digits(server_ms())}
end

-- Stands behind lease.lua in what begins or ends runs: the only writer of a lock's memory (its only reader is runs.lua). It must
-- never fail a grant or a release, so it is called last there, by pcall. What cannot be written is forgotten.
-- Keys, which are named here, as a longer request would not be read to its end; all last for FENCE_MS after the last write:
--   open (hash: token -> run that has not ended), ends (sorted set: token -> deadline of its lease in ms, for each in open),
--   log (list: the last runs that have ended, in the order in which that was written, newest first),
--   runs (hash: success, failure: of the runs that were told as one, the one that ended last; once: of the successes with
--     --once-per, the one that began last; succeeded, failed: how many were told; kept: to how many the log has been cut;
--     forced: an object whose y and b say who freed the lock for all its holders, and when)
-- A run is a JSON object of texts: t token, h host, p pid, u user, l label, b began (ms), w waited (ms), f fence, i place,
-- q if it had --once-per, n how many runs to keep (only in open, and not if 20); with its end: d duration (ms), and as outcome x
-- (exit status) or s (signal) or o (another one); none of them: its lease ran out. y is the signature of a revocation.
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'
local SEARCHED = 200 -- so many of the newest are looked through for a run that ended without a word
local CLOSED = 100   -- so many of those that have ended without a word are closed by one grant

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
    w = ARG.waited ~= '0' and ARG.waited or nil, f = digits(fence), i = place and digits(place), q = ARG.once and '1',
    n = ARG.log ~= '20' and ARG.log or nil}
end

-- A run that has ended, as it stands in the log.
local function line_of(run)
  run.n = nil
  return cjson.encode(run)
end

-- Puts runs that have ended in front of the log, which keeps so many.
local function push(lines, most)
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
  local function time(run)
    local began, duration = string.match(run, '"b":"(%d+)"'), field ~= 'once' and string.match(run, '"d":"(%d+)"')
    return (began or 0) + (duration or 0)
  end
  local known = time(redis.call('HGET', RUNS, field) or '')
  return known <= time(line) or known > server_ms()
end

-- Counts a run whose end was told, unless it is neither a success nor a failure.
local function count_end(run, line)
  local success = run.x == '0' and not run.o
  if not success and (run.o == 'released' or run.o == 'expired') then return end
  local result = success and 'success' or 'failure'
  -- One that ends now is the last, and needs no look.
  if run.b + run.d >= server_ms() or is_newer(line, result) then redis.call('HSET', RUNS, result, line) end
  if success and run.q and is_newer(line, 'once') then redis.call('HSET', RUNS, 'once', line) end
  redis.call('HINCRBY', RUNS, success and 'succeeded' or 'failed', 1)
  redis.call('PEXPIRE', RUNS, FENCE_MS)
end

-- Where in the newest of the log the run of this token is, and the run.
local function find_logged(token)
  for at, line in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
    if string.find(line, '"t":"' .. token .. '"', 1, true) then return at - 1, cjson.decode(line) end
  end
end

-- What the memory knows of the run of this token, nil if nothing: 'ended' if a release has told its end, 'known' if it goes on, was
-- lost or was revoked.
local function told_end(token)
  local ok, known = pcall(function()
    if redis.call('HEXISTS', OPEN, token) == 1 then return 'known' end
    local _, run = find_logged(token)
    local told = run and (not run.o and (run.x or run.s) or run.o == 'too-long' or run.o == 'released')
    return run and (told and 'ended' or 'known')
  end)
  return ok and known or nil
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
-- outcome gets this one; only its status, if that comes from who has released a lease that had run out (`late`).
local function note_end(token, outcome, code, by, late)
  pcall(function()
    local deadline = tonumber((late or ARG.gone) and redis.call('ZSCORE', ENDS, token) or nil)
    local run, at = take_open({token})[1], nil
    if outcome == 'unused' then return end
    if not run and (late or ARG.gone) then
      at, run = find_logged(token)
      if run and (run.x or run.s or run.o) then run = nil end
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
    if at then redis.call('LSET', LOG, at, line) else push({line}, most) end
    count_end(run, line)
  end)
end

-- The run of this lease, which the server has forgotten in a restart, as its release tells it whole.
local function note_forgotten()
  pcall(function()
    if server_ms() == 0 or not ARG.log or (ARG.outcome or 'unused') == 'unused' then return end
    local run = new_run(tonumber(ARG.fence), ARG.slot, server_ms() - ARG.began)
    local most = tonumber(run.n) or 20
    set_end(run, ARG.outcome, ARG.code, nil, end_of(run))
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

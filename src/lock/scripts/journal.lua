-- Stands behind run.lua in what ends runs: the end of a run, written into the log. Cost: 10 calls, of a run that ends now.
local SEARCHED = 200 -- so many of the newest are looked through for a run that ended without a word

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

-- Puts runs that have ended, the first of them then (ms), into the log, which keeps so many. One of them may be there already, at
-- `at`, with another end.
local function push(lines, first, most, at)
  local newest = redis.call('LINDEX', LOG, '0')
  if at or newest and ended_at(newest) > first then
    local ends = {}
    for _, line in ipairs(take_newest(first, at)) do lines[#lines + 1] = line end
    for _, line in ipairs(lines) do ends[line] = ended_at(line) end
    table.sort(lines, function(one, other) return ends[one] < ends[other] end)
  end
  if redis.call('LPUSH', LOG, unpack(lines)) > most then
    redis.call('LTRIM', LOG, '0', digits(most - 1))
    if redis.call('HSETNX', RUNS, 'kept', '1') == 1 then redis.call('PEXPIRE', RUNS, FENCE_MS) end
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
  redis.call('HINCRBY', RUNS, result, '1')
  redis.call('PEXPIRE', RUNS, FENCE_MS)
end

-- Puts a run that has ended into the log, and counts it.
local function log_end(run, most, at)
  run.n = nil
  local line = cjson.encode(run)
  push({line}, run.b + run.d, most, at)
  count_end(run, line)
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

-- When the job of this run has ended: as long after its beginning as its redlock says, since the request may have waited for the
-- server, and the server's clock may have been changed; else ARG.ended ms ago.
local function end_of(run)
  local ended = tonumber(ARG.ended) or 0
  return ARG.began and run.b + math.max(ARG.began - ended, 0) or server_ms() - ended
end

-- The run of this token, whose lease is here, has ended. An unused lease leaves nothing.
local function note_end(token, outcome, code, by)
  pcall(function()
    local run = take_open({token})[1]
    if not run or outcome == 'unused' then return end
    local most = tonumber(run.n) or 20
    set_end(run, outcome, code, by, end_of(run))
    log_end(run, most)
  end)
end

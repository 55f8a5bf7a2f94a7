-- Stands behind run.lua in what ends runs: the end of a run, written into the log. Cost: 8 calls.
-- A run stays the text that it is (run.lua): as a quote inside a value is escaped, `"b":"` is always the name of a
-- field.
local SEARCHED = 200        -- so many of the newest are looked through for a run that ended without a word
local LOG_MS = '8726400000' -- 101 days, renewed when less than 100 are left: users may ask for runs of 100 days

-- The number in this field of a run, nil if it has none. (A plain search is the fastest.)
local function number_of(run, name)
  local _, last = string.find(run, '"' .. name .. '":"', 1, true)
  return last and tonumber(string.match(run, '^%d+', last + 1))
end

-- When the run began (ms).
local function began_at(run)
  return number_of(run, 'b') or 0
end

-- When it ended.
local function ended_at(run)
  return began_at(run) + (number_of(run, 'd') or 0)
end

-- The run with this end (ms) and this outcome in place of what it may have.
local function with_end(run, ended, outcome)
  local behind = string.find(run, ',"d":"', 1, true) or #run
  return string.sub(run, 1, behind - 1) .. ',"d":"' .. digits(math.max(ended - began_at(run), 0)) .. '"' .. outcome .. '}'
end

-- So many characters of a text, without control characters; nil if that leaves none.
local function short(text, most)
  if #text > most then
    local count = 0
    for at in string.gmatch(text, '()[^\128-\191]') do
      count = count + 1
      if count > most then text = string.sub(text, 1, at - 1) break end
    end
  end
  text = string.gsub(text, '%c', '?')
  return text ~= '' and text or nil
end

-- An outcome, as it stands in a run. `by`: who has revoked its lease.
local function outcome_of(word, code, by)
  by = by and short(by, 100)
  local letter = word == 'exited' and 'x' or word == 'signaled' and 's'
  return ',"' .. (letter or 'o') .. '":"' .. (letter and code or word) .. '"' .. (by and ',"y":' .. cjson.encode(by) or '')
end

-- True if the end of a run has this outcome.
local function has_ended(run, outcome)
  return string.find(run, outcome, 1, true) ~= nil
end

-- How the end of a run counts: as a success or as a failure, or nil.
local function result_of(run)
  if has_ended(run, ',"o":"released"') or has_ended(run, ',"o":"expired"') then return nil end
  return has_ended(run, ',"x":"0"') and 'success' or 'failure'
end

-- Puts runs that have ended into the log, in the order of their ends; the log keeps the newest `most`. `first` is when
-- the first of them ended (ms), nil if all in the log are surely older. One of them may be in the log already, at `at`,
-- with another end. Returns true if no run in the log ended later.
local function push(runs, first, most, at)
  local newest = first and redis.call('LINDEX', LOG, '0')
  local are_last = not at and #runs == 1 and not (newest and ended_at(newest) > first)
  if not are_last then -- takes out the runs that ended later, and all as far as `at`, and puts them back sorted
    local taken, ends = 0, {}
    for i, run in ipairs(redis.call('LRANGE', LOG, 0, SEARCHED - 1)) do
      if i - 1 > (at or -1) and ended_at(run) <= first then break end
      if i - 1 ~= at then runs[#runs + 1] = run end
      taken = i
    end
    redis.call('LTRIM', LOG, taken, -1)
    for _, run in ipairs(runs) do ends[run] = ended_at(run) end
    table.sort(runs, function(one, other) return ends[one] < ends[other] end)
  end
  if redis.call('LPUSH', LOG, unpack(runs)) > most then
    redis.call('LTRIM', LOG, '0', digits(most - 1))
    if redis.call('HSETNX', RUNS, 'cut', '1') == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
  end
  -- Both are renewed once a day.
  if redis.call('PTTL', LOG) < tonumber(FENCE_MS) then
    for _, key in ipairs({LOG, RUNS}) do redis.call('PEXPIRE', key, LOG_MS) end
  end
  return are_last
end

-- True if this run, whose end is told now, is to take the place of the one in RUNS, which ended (once: began) earlier,
-- or by a clock that was set back since.
local function is_newer(run, field)
  local time = field == 'once' and began_at or ended_at
  local known = time(redis.call('HGET', RUNS, field) or '')
  return known <= time(run) or known > server_ms()
end

-- Puts a run whose end is known into RUNS, if it is the last success or failure.
local function keep_last(run, result, is_last)
  if is_last or is_newer(run, result) then redis.call('HSET', RUNS, result, run) end
  if result == 'success' and string.find(run, '"q":', 1, true) and is_newer(run, 'once') then redis.call('HSET', RUNS, 'once', run) end
end

-- Counts a run whose end is known. One that is the last to end is the last success or failure too, and needs no look.
local function count_end(run, is_last)
  local result = result_of(run)
  if not result then return end
  keep_last(run, result, is_last)
  local count = redis.call('HINCRBY', RUNS, result == 'success' and 'succeeded' or 'failed', '1')
  if count == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
end

-- The number of runs that the log keeps, by what this run says.
local function most_of(run)
  return number_of(run, 'n') or 20
end

-- Puts a run into the log, with this end in place of what it may have, and counts it. It may be there already, at `at`.
-- `is_last`: none has ended later.
local function log_end(run, ended, outcome, at, is_last)
  local most = at and math.huge or most_of(run)
  run = with_end(run, ended, outcome)
  count_end(run, push({run}, not is_last and ended or nil, most, at))
end

-- Takes a run out of those that go on, and returns it.
local function take_open(token)
  local run = redis.call('HGET', OPEN, token)
  redis.call('HDEL', OPEN, token)
  redis.call('ZREM', ENDS, token)
  return run
end

-- When the job of this run has ended: as long after its beginning as its redlock says, since the request may have
-- waited for the server, and the server's clock may have been changed; else ARG.ended ms ago.
local function end_of(run)
  local ended = tonumber(ARG.ended) or 0
  return ARG.began and began_at(run) + math.max(ARG.began - ended, 0) or server_ms() - ended
end

-- Writes that the run of this token, whose lease is here, has ended. An unused lease leaves nothing.
local function write_end(token, word, code, by)
  local run = take_open(token)
  if not run or word == 'unused' then return end
  log_end(run, end_of(run), outcome_of(word, code, by), nil, not shape)
end

local function remember_end(...)
  pcall(write_end, ...)
end

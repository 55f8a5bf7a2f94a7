-- Writes the end of a run into the log and into RUNS. No other file adds runs to the log. A script calls these
-- functions by pcall: an error here does not replace the script's answer. The calls come after the script's main
-- writes, since a server out of memory refuses only a script's first write.
-- RUNS has these fields:
--   success, failure: the last run that succeeded, the last that failed
--   succeeded, failed: the number of runs that succeeded, the number that failed
--   once, once_before: see note_once in release.lua
--   cut: set when the log is first cut
--   forced: the last time that the leases of all holders were ended by force: an object with b (ms) and y (who did it)
-- A run is a JSON object with these fields (see grant.lua):
--   t token, b began (ms since 1970), f fencing token, i slot, h host, p pid, u user, l label, w waited (ms)
--   q: set if the run had --once-per
--   a: set if acquire took the lease
--   n: the number of runs that the log keeps, if not 20
-- An ended run also has d (duration, ms), and an outcome: x (exit status), s (signal) or o (another outcome). A run
-- without an outcome ended when its lease ran out. y is the user@host that revoked the lease. Quotes inside values are
-- escaped, so `"b":"` is always the name of a field.

-- Returns the run with this duration and outcome, in place of those that the run may have. `duration`: ms, a number or
-- a text. `word`: the outcome; nil if the lease ran out. `code`: the exit status or the signal; with 'expired', the
-- exit status that was told after the lease had run out. `by`: the user who revoked the lease; nil: nobody.
local function with_end(run, duration, word, code, by)
  local outcome = '"'
  if word == 'exited' then outcome = '","x":"' .. code .. '"'
  elseif word == 'signaled' then outcome = '","s":"' .. code .. '"'
  elseif word then outcome = '","o":"' .. word .. (word == 'expired' and '","x":"' .. code or '') .. '"' end
  if by then outcome = outcome .. ',"y":' .. cjson.encode(by) end
  if type(duration) == 'number' then duration = string.format('%.0f', math.max(duration, 0)) end
  local behind = string.find(run, ',"d":"', 1, true) or #run
  return string.sub(run, 1, behind - 1) .. ',"d":"' .. duration .. outcome .. '}'
end

-- Puts `runs`, in the order of their ends, in front of the log: the last to end is then the log's first run. Cuts the
-- log to the newest `most` runs. Cost: 2 calls, and 2 more if the log is full.
local function push(runs, most)
  local over = redis.call('LPUSH', LOG, unpack(runs)) - most
  if over > 0 then
    redis.call('LTRIM', LOG, '0', over == 1 and '-2' or -1 - over)
    if redis.call('HSETNX', RUNS, 'cut', '1') == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
  end
  -- The expiries are renewed once a day at most.
  if redis.call('PTTL', LOG) < tonumber(FENCE_MS) then
    for _, key in ipairs({LOG, RUNS, BASE .. 'visits'}) do redis.call('PEXPIRE', key, LOG_MS) end
  end
end

-- The number of runs that the log keeps, as this run says; 20 if this run does not say it.
local function most_of(run)
  local _, at = string.find(run, 'n":"', 1, true)
  return at and tonumber(string.match(run, '^%d+', at + 1)) or 20
end

-- Records that the run of this token has ended. The arguments from `duration` to `by` are those of with_end. `sorted`:
-- nil if no other run can have ended later than this run. Otherwise it is a function (sorted_at in memory.lua) that
-- takes the later runs out of the log, so that end_run can write this run before them. Cost: 6 calls.
local function end_run(token, run, duration, word, code, by, sorted)
  redis.call('HDEL', OPEN, token)
  redis.call('ZREM', ENDS, token)
  run = with_end(run, duration, word, code, by)
  local result = word == 'exited' and code == '0' and 'success' or 'failure'
  if word == 'released' or word == 'expired' then result = nil end
  local runs, most, is_last = {run}, most_of(run), true
  if sorted then runs, most, is_last = sorted(run, most, result) end
  push(runs, most)
  if not result then return end
  if is_last then redis.call('HSET', RUNS, result, run) end
  local count = redis.call('HINCRBY', RUNS, result == 'success' and 'succeeded' or 'failed', '1')
  if count == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
end

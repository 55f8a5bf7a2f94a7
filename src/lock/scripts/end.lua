-- Writes the end of a run into the log and into RUNS. No other file adds runs to the log. A script calls these
-- functions by pcall, after its main writes: a server out of memory refuses only a script's first write.
-- RUNS has these fields:
--   success, failure: the last run of each kind
--   succeeded, failed: the number of runs of each kind
--   once, once_before: see release.lua
--   cut: set when the log is first cut
--   forced: the last time that all holders' leases were ended by force. An object: b is the time, y is who did it.
-- A run has these fields (see grant.lua):
--   t token, b began (ms), f fence, i slot, h host, p pid, u user, l label, w waited (ms)
--   q: set if the run had --once-per
--   a: set if acquire took the lease
--   n: the number of runs that the log keeps, if not 20
-- An ended run also has d (duration, ms) and an outcome: x (exit status), s (signal) or o (another outcome). Without an
-- outcome, the lease ran out. y is the user@host that revoked the lease. Quotes inside values are escaped, so `"b":"`
-- is always the name of a field.

-- Returns the run with this duration and outcome; its old duration and outcome are replaced. `duration`: ms, a number
-- or a text. `word`: the outcome. `code` with 'expired': the exit status that was told after the lease had run out.
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

-- Puts ended runs, in the order of their ends, in front of the log. Cuts the log to the newest `most` runs.
-- Cost: 2 calls, and two more if the log is full.
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

-- The number of runs that the log keeps, as this run says; 20 if the run says nothing.
local function most_of(run)
  local _, at = string.find(run, 'n":"', 1, true)
  return at and tonumber(string.match(run, '^%d+', at + 1)) or 20
end

-- Records that the run of this token has ended. `sorted` is nil if no other run can have ended later. Otherwise the
-- function `sorted` (see sorted_at in memory.lua) takes the runs that ended later out of the log. end_run then writes
-- this run first, and those runs after this run. Cost: 6 calls.
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

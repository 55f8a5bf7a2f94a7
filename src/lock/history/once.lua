-- needs log
-- Answers a call with --once-per. RUNS and TRIES are read before the script writes anything: if a read fails, the script
-- fails, and the node has no vote.
local once, expected = unpack(ARG.once and redis.call('HMGET', RUNS, 'once', 'expected') or {})
local tries = ARG.tries and redis.call('ZRANGE', BASE .. 'tries', 0, -1, 'WITHSCORES') or {}

-- What the call promises, for `check`. The first such call stays the first. If this cannot be written, the call goes on.
if ARG.expected and string.match(expected or '', '^%d+ %d+') ~= ARG.expected then
  redis.pcall('HSET', RUNS, 'expected', ARG.expected .. ' ' .. (string.match(expected or '', '%d+$') or ms))
  redis.pcall('PEXPIRE', RUNS, LOG_MS)
end

-- True if a run that began at this time is less than ARG.once ms away. A run that begins less than ARG.once ms after
-- now counts, too, because the server's clock may have been set back.
local function is_within(began)
  return math.abs(now - began) < tonumber(ARG.once or 0)
end

local function recent_success()
  if not once then return nil end
  local is_read, run = pcall(cjson.decode, once)
  local began = is_read and type(run) == 'table' and tonumber(run.b)
    or error('WRONGTYPE ' .. RUNS .. ' has no time of the last success')
  return is_within(began) and {success = once, clock = ms}
end

local function tried_enough()
  if not ARG.tries then return nil end
  -- The script may have undone an earlier try of the caller, which then does not count.
  if ARG.earlier then tries = redis.call('ZRANGE', BASE .. 'tries', 0, -1, 'WITHSCORES') end
  local count, first, last = 0, nil, nil
  for i = 2, #tries, 2 do
    if is_within(tries[i]) then count, first, last = count + 1, first or tries[i], tries[i - 1] end
  end
  if count < tonumber(ARG.tries) then return nil end
  local _, text = find_run(last) -- nil if the log has forgotten it; others' runs may have begun since
  return {tries = count, first = first, last = text, going = value, clock = ms}
end

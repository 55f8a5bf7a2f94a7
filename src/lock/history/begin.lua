-- Notes the run that begins with a grant. grant.lua sets `began` (ms since 1970), `fence` and `slot`. Without
-- ARG.entry, nothing is noted. If the log cannot be written, the grant still succeeds.
local function begin_run()
  local run = cjson.decode(ARG.entry)
  run.t, run.b, run.f, run.i = ARG.token, began, fence, slot and tostring(slot)
  -- The end of a run cuts the log to the run's number. A grant leaves room for more: for those that hold the lock
  -- together, and for tries that will be undone.
  local most = math.max((run.n or 20) + 20, 40)
  if redis.call('LPUSH', LOG, cjson.encode(run)) > most then redis.call('LTRIM', LOG, 0, most - 1) end
  -- The expiries are renewed once a day at most.
  if redis.call('PTTL', LOG) < tonumber(FENCE_MS) then
    for _, key in ipairs({LOG, RUNS, BASE .. 'visits'}) do redis.call('PEXPIRE', key, LOG_MS) end
  end
end

if ARG.entry then pcall(begin_run) end

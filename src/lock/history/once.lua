-- needs visits
-- Answers a call with --once-per. RUNS is read before the script writes anything: if the read fails, the script fails,
-- and the node has no vote.
local once = ARG.once and redis.call('HGET', RUNS, 'once')

-- The answer `ran`, if the last success with --once-per began within ARG.once ms of now. A run that begins less than
-- ARG.once ms after now counts, too, since the server's clock may have been set back.
local function recent_success()
  if not once then return nil end
  local is_read, run = pcall(cjson.decode, once)
  local began = is_read and type(run) == 'table' and tonumber(run.b)
    or error('WRONGTYPE ' .. RUNS .. ' has no time of the last success')
  if math.abs(now - began) >= tonumber(ARG.once) then return nil end
  local last = not ARG.waiter and redis.pcall('ZSCORE', VISITS, ARG.host)
  local came = type(last) == 'string' and now - math.floor(last / 10) or nil
  return {success = once, clock = ms, came = came}
end

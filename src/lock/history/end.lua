-- needs log
-- Notes the end of a run. The first end that is reported stays. Two exceptions: a later end may add the errors of the
-- job, and a loss, which the client reports when a quorum has lost the lease, takes a success back.
-- The usual end of a run creates few functions and reads no text of the log (keys.lua).
local notes = {} -- fields of the answer: unnoted (why `once` could not be written), unwritten (why the rest could not)

local function succeeded(run)
  return run.x == '0' and not run.o
end

-- Calls `write`. If that fails, the answer gets the server's error, in the field `name`.
local function note(name, write, ...)
  local done, why = pcall(write, ...)
  if not done then notes[name] = type(why) == 'table' and why.err or why end
end

-- Notes the text of a success with --once-per, unless the noted success has a larger fencing token.
local function note_once(text, fence)
  local known = redis.call('HGET', RUNS, 'once')
  if known and tonumber(cjson.decode(known).f) > tonumber(fence) then return end
  redis.call('HSET', RUNS, 'once', text)
  redis.call('PEXPIRE', RUNS, LOG_MS)
end

-- Notes that the run of this token has ended. `ending`: what the client reports of the end, usually with the whole run,
-- because the log may have lost it. What the log knows already stays. `at`, `text`: the run in the log, if it is known.
local function end_run(token, ending, at, text)
  if not at then at, text = find_run(token) end
  if ending.o == 'lost' then
    -- The success of this token no longer counts. (The log may have lost the run: tests/model/once.rs.)
    for _, field in ipairs({'success', 'once'}) do
      if is_of(redis.call('HGET', RUNS, field), token) then redis.call('HDEL', RUNS, field) end
    end
  end
  local run, errors = ending, ending.e
  ending.e = nil
  -- Usually the client reports all that the log has, and the log has no end: then ARG.run is the whole text.
  local is_usual = at and ending.b and not (ending.o or errors) and not string.find(text, '"[do]":"')
    and string.find(text, '"b":"' .. ending.b .. '"', 1, true)
  if at and not is_usual then
    run = cjson.decode(text)
    if run.x or run.s or run.o then
      if ending.o ~= 'lost' or not succeeded(run) then
        local failure = errors and redis.call('HGET', RUNS, 'failure')
        if not is_of(failure, token) then return end
        failure = cjson.decode(failure)
        failure.e = failure.e or errors
        return redis.call('HSET', RUNS, 'failure', cjson.encode(failure))
      end
      redis.call('HINCRBY', RUNS, 'succeeded', -1)
      run.x = nil
    end
    for name, value in pairs(ending) do run[name] = run[name] or value end
  end
  if not run.b then return end -- a release by token cannot tell a run that the log has lost
  if run.o ~= 'expired' then run.d = run.d or string.format('%.0f', math.max(ms - run.b, 0)) end
  text = is_usual and ARG.run or cjson.encode(run)
  if run.q and succeeded(run) then note('unnoted', note_once, text, run.f) end
  if at then
    redis.call('LSET', LOG, at, text)
  else
    redis.call('LPUSH', LOG, text)
    redis.call('PEXPIRE', LOG, LOG_MS)
  end
  redis.call('LTRIM', LOG, 0, (run.n or 20) - 1)
  if run.o == 'released' or run.o == 'expired' then return end
  local result, count = 'success', 'succeeded'
  if not succeeded(run) then result, count = 'failure', 'failed' end
  -- If other runs began later, the noted run may have ended later. (If it ended in the future, the clock was set back.)
  local known = at ~= 0 and redis.call('HGET', RUNS, result)
  known = known and cjson.decode(known)
  known = known and known.b + known.d
  if not known or known <= run.b + run.d or known > tonumber(ms) then
    if errors and result == 'failure' then
      run.e = errors
      text = cjson.encode(run)
    end
    redis.call('HSET', RUNS, result, text)
  end
  if redis.call('HINCRBY', RUNS, count, 1) == 1 then redis.call('PEXPIRE', RUNS, LOG_MS) end
end

-- Tells the memory of a lock: its runs, in the form that end.lua describes. Changes nothing, except that state.lua
-- forgets members whose lease has run out.
-- ARG: most (how many runs to tell, at most 200), from (how many of the log's newest runs to skip; nil: none),
--      since (ms: leave out runs of the log that ended longer ago; nil: none is too old), failed (given: leave out runs
--      of the log that exited with 0, or were released without a status), hosts (given: tell the visits),
--      errors (given: tell the errors of failed runs)
-- Answers: runs (clock in ms, and fields of RUNS: success, failure, succeeded, failed, forced),
--      logged (the length of the log; nil: the log was never cut), ended (runs of the log, the newest first),
--      further (given if the log goes on behind the runs that were read), oldest (with since: the log's oldest run)
--      without ARG.from also:
--      over (run, deadline, run, deadline, ...: the latest runs that ended without a release, and are not in the log
--      yet; on an exclusive lock the run that goes on is among them),
--      going (at most `most` runs that go on), running (the number of all runs that go on), visits (host, score, host,
--      score, ...: see keys.lua), errors (of the `most` newest failed runs), node (uptime and run_id, see keys.lua; nil
--      if a run is known)
-- Cost: 10 calls, with one run.
-- include lease
local PAGE = 200
local most, from = math.min(tonumber(ARG.most), PAGE), tonumber(ARG.from) or 0
local names = {'success', 'failure', 'succeeded', 'failed', 'cut', 'forced'}
local fields = {clock = ms, ended = {}}
for i, value in ipairs(redis.call('HMGET', RUNS, unpack(names))) do fields[names[i]] = value end
fields.logged, fields.cut = fields.cut and redis.call('LLEN', LOG), nil

-- The open runs of these tokens. With step 1, `tokens` has tokens only. With step 2, a value stands behind each token,
-- and the result has this value behind the token's run.
local function open_runs(tokens, step)
  local told = {}
  for i = 1, #tokens, step do
    told[#told + 1] = redis.call('HGET', OPEN, tokens[i])
    for behind = 1, told[#told] and step - 1 or 0 do told[#told + 1] = tokens[i + behind] end
  end
  return told
end

-- Returns two booleans: whether the caller asks for this run of the log, and whether the run is recent enough. For a
-- run that cannot be read, both are true.
local function is_meant(line)
  local ok, run = pcall(cjson.decode, line)
  if not ok or type(run) ~= 'table' then return true, true end
  local recent = not ARG.since or now - ((tonumber(run.b) or now) + (tonumber(run.d) or 0)) < tonumber(ARG.since)
  local well = run.o == 'released' or run.x == '0' and not run.o
  return recent and not (ARG.failed and well), recent
end

local by_content = ARG.since or ARG.failed
local page, recent = redis.call('LRANGE', LOG, from, from + (by_content and PAGE or most) - 1), not by_content
for _, line in ipairs(page) do
  local meant, in_time = true, true
  if by_content then meant, in_time = is_meant(line) end
  recent = recent or in_time
  if meant and #fields.ended < most then fields.ended[#fields.ended + 1] = line end
end
-- The runs of the log behind this page are older. If all runs of the page are too old, redlock needs no further page.
fields.further = recent and redis.call('LLEN', LOG) > from + #page and 1
fields.oldest = ARG.since and redis.call('LINDEX', LOG, -1)

if not ARG.from then
  -- HEXISTS is called even if its result is not needed: it fails if OPEN is no hash, and the client must get this
  -- error.
  local going, from_now, is_open = {}, digits(now + 1), redis.call('HEXISTS', OPEN, value or '') == 1
  if claim then
    going = redis.call('ZRANGE', ENDS, from_now, '+inf', 'BYSCORE', 'LIMIT', 0, most)
    fields.running = math.min(redis.call('ZCOUNT', ENDS, from_now, '+inf'), redis.call('ZCARD', M))
  elseif is_open then
    going, fields.running = {value}, 1
  end
  fields.going = open_runs(going, 1)
  local over = redis.call('ZRANGE', ENDS, claim and ms or '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, most, 'WITHSCORES')
  fields.over = open_runs(over, 2)
  fields.visits = ARG.hosts and redis.call('ZRANGE', BASE .. 'visits', 0, -1, 'WITHSCORES')
  fields.errors = ARG.errors and redis.call('LRANGE', BASE .. 'errors', 0, most - 1)
  -- A server that knows no run of this lock may have forgotten all runs in a restart. The answer then has `node`, which
  -- tells how long ago the server was started.
  local knows_any = page[1] or fields.going[1] or fields.over[1] or fields.success or fields.failure
  fields.node = not knows_any and node() or nil
end
return answer_from_reads('runs', fields)

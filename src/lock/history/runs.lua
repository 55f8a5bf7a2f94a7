-- Reports the history of a lock: its runs, as log.lua describes them. Changes nothing, except that state.lua forgets
-- members whose lease has run out.
-- ARG: most (how many runs to report, beside those that go on), hosts (given: report the visits), newest (given: report
--      the number of --newest, and if there is one, the visits), looked (given: inspect.lua has answered, so this is no replica)
-- Answers: runs (clock in ms, and fields of RUNS: success, failure, succeeded, failed, expected), texts (the runs that
--      began last, the newest first), more (given: the log may have more), going (tokens that hold the lock: all that stand
--      in texts, and on an exclusive lock the holder's), members (how many members hold the lock; nil: none), visits
--      (host, score, host, score, ...: see visits.lua), newest (see newest.lua), node (uptime and run_id, see keys.lua;
--      nil if a run is known), counters (how many kinds of fencing counters the lock has; nil if a run is known)
-- Cost: 5 calls, with one run.
-- include lease, log
local fields = {clock = ms, members = claim and redis.call('ZCARD', M), going = {value}}
local most = math.min(ARG.most + (fields.members or 1), LOGGED)
fields.texts = redis.call('LRANGE', LOG, 0, most - 1)
fields.more = #fields.texts == most and 1
local names = {'success', 'failure', 'succeeded', 'failed', 'expected'}
for i, field in ipairs(redis.call('HMGET', RUNS, unpack(names))) do fields[names[i]] = field end
for _, text in ipairs(claim and fields.texts or {}) do
  local is_read, run = pcall(cjson.decode, text)
  if is_read and type(run) == 'table' and type(run.t) == 'string' and is_held_by(run.t) then
    fields.going[#fields.going + 1] = run.t
  end
end
fields.newest = ARG.newest and redis.pcall('GET', BASE .. 'newest')
if type(fields.newest) ~= 'string' then fields.newest = nil end
fields.visits = (ARG.hosts or fields.newest) and redis.call('ZRANGE', BASE .. 'visits', -100, -1, 'WITHSCORES')
-- A server that knows no run of this lock may have lost all runs in a restart. The answer then has `node`, with the
-- server's uptime.
if not (fields.texts[1] or fields.success or fields.failure) then
  fields.node, fields.counters = node(), redis.call('EXISTS', F, S)
end
return (ARG.looked and answer or answer_from_reads)('runs', fields)

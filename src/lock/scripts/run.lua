-- Stands behind grant.lua or record.lua in what begins or ends runs: a run, as it stands in a lock's memory, and its
-- beginning. What writes there must never fail a grant or a release, so it is called last, by pcall. What cannot be
-- written is forgotten.
-- Keys, which are named here, as a longer request would not be read to its end. All last for FENCE_MS after the last
-- write:
--   open (hash: token -> run that has not ended),
--   ends (sorted set: token -> deadline of its lease in ms, for each in open),
--   log (list: the last runs that have ended, the last to end in front),
--   runs (hash: success, failure: of the runs that were told as one, the one that ended last; once: of the successes
--     with --once-per, the one that began last; succeeded, failed: how many were told; cut: there once the log was cut;
--     forced: an object whose y and b say who freed the lock for all its holders, and when)
-- A run is a JSON object of texts, without spaces:
--   t token, b began (ms), f fence, i place;
--   then ARG.entry, what its redlock knows of it (run.rs): h host, p pid, u user, l label, w waited (ms), q if it had
--     --once-per, a if acquire took the lease, n how many runs the log keeps, if not 20;
--   then its end: d duration (ms), and as outcome x (exit status) or s (signal) or o (another one); none of them: its
--     lease ran out. y is who has revoked it (user@host).
-- This file, journal.lua, close.lua and correct.lua write runs. runs.lua alone reads what users are told; contend.lua
-- reads `once`.
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'

-- The run of this grant.
local function new_run(began, fence, place)
  local slot = place and ',"i":"' .. digits(place) .. '"' or ''
  return '{"t":"' .. ARG.token .. '","b":"' .. began .. '","f":"' .. fence .. '"' .. slot .. ',' .. string.sub(ARG.entry, 2)
end

-- Writes that a lease has begun, for ARG.ttl.
local function write_begin(fence, place)
  local began = ARG.held and digits(server_ms() - ARG.held) or string.sub(server_us(), 1, -4)
  redis.call('HSET', OPEN, ARG.token, new_run(began, fence, place))
  redis.call('ZADD', ENDS, digits(server_ms() + ARG.ttl), ARG.token)
  redis.call('PEXPIRE', OPEN, FENCE_MS)
  redis.call('PEXPIRE', ENDS, FENCE_MS)
end

-- The same, if there is a memory: without a clock there is none. Cost: 4 calls.
local function remember_begin(fence, place)
  if ARG.entry and server_ms() ~= 0 then pcall(write_begin, fence, place) end
end

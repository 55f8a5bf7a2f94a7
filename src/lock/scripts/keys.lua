-- Stands first in every script: the keys of a lock in Redis, the arguments, the clock, and what the lock's key has.
-- Straight lines, since what a script spends is the creation of its functions; take.lua and release.lua do their usual
-- case with no more than this, and include the rest where it is needed (build.rs).
-- KEYS: lock (string: token, or a mark), lease (hash: owner record), fence (string: counter),
--       queue (sorted set: waiter -> ticket in us), reserved (string: waiter, or token of a holder),
--       holds (sorted set: hold -> age), members (sorted set: token -> deadline in ms),
--       slots (sorted set: token -> slot), fences (hash: slot -> counter, all)
-- A lock that several hold bears a mark, `shared.` or `slots:L.` and a nonce: no other program takes that for its own
-- token. Then members lists the leases, `member:TOKEN` is the record of each, and lease has the fields `longest`, their
-- longest ttl, `revoked` (when in us, and by whom: all members that were granted before), and `some_kept` when a member
-- is kept though its job has ended. A script does its whole work: 5 ms at most for 1,000 of anything, and grows no
-- faster than they do.
-- ARGV: name, value, name, value; read as ARG.name. `claim` is the way to have the lock (see fits), nil for a command
--       that takes none. The head of a script names its other arguments. An argument that is not given is nil.
-- Answers are name, value, name, value too, and always have an `outcome`. `holders` is a list of such lists: value, left
-- (ms, PTTL), the owner record and now (us), of a member its claim and slot; or type and left for a key that is no
-- string. With members there are `members` (their number), `next` (ms, until one of them runs out) and `longest`.
-- `node` is uptime (s) and run_id, '' where INFO is refused. The memory of runs has keys that are named here: a longer
-- request would not be read to its end.
--   open (hash: token -> run that has not ended), ends (sorted set: token -> deadline of its lease in ms, for each in
--   open), log (list: the last runs that have ended, the last to end in front), runs (hash: see end.lua), visits
--   (sorted set: host -> when it came last, in ms, and behind that a digit for what it met: see note_visit), errors
--   (list: objects of t token and e the last lines that the job wrote to its standard error, the newest in front)
local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
-- With room for sixteen: a table that grows is built anew at each doubling.
local ARG, given = {token = nil, ttl = nil, now = nil, host = nil, pid = nil, user = nil, label = nil, entry = nil,
  claim = nil}, ARGV
for i = 1, #given, 2 do ARG[given[i]] = given[i + 1] end
local BASE = string.sub(L, 1, -6) -- without 'lease': the names of the channels begin with it
local OPEN, ENDS, LOG, RUNS = BASE .. 'open', BASE .. 'ends', BASE .. 'log', BASE .. 'runs'

-- A queue that no waiter looks after is forgotten; the fencing counters and the runs that go on outlive their last use
-- by 100 days. What has ended lasts 101, renewed when less than 100 are left: users may ask for runs of 100 days.
local QUEUE_MS, FENCE_MS, LOG_MS = '900000', '8640000000', '8726400000'

-- The server's clock, as texts.
local time = redis.call('TIME')
local us = time[1] .. string.sub('00000' .. time[2], -6)
local ms = string.sub(us, 1, -4)

-- The value of the lock, a token or a mark: false when it is free, an error when the key is of another type.
local value = redis.pcall('GET', K)

-- What the node tells of itself, as a part of an answer; the seconds since its start (below zero if its clock was set
-- back behind that), nil where INFO is refused; its run_id. Cost: INFO, as much as five other calls.
local function node()
  local info, uptime, run_id = redis.pcall('INFO', 'server'), '', ''
  if type(info) == 'string' then
    local _, last = string.find(info, 'uptime_in_seconds:', 1, true) -- a plain search is the fastest
    uptime = string.match(info, '^[%w-]*', last + 1)
    _, last = string.find(info, 'run_id:', 1, true)
    run_id = string.sub(info, last + 1, string.find(info, '\r', last, true) - 1)
  end
  return {'uptime', uptime, 'run_id', run_id}, tonumber(uptime), run_id
end

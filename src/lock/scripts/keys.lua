-- Stands first in every script: the keys of a lock in Redis, the arguments, the clock, and the value of the lock's key.
-- Creating functions takes most of a script's time. So take.lua and release.lua first do the usual case, with few
-- functions; the functions for other cases are included further down (build.rs).
-- KEYS: lock (string: token, or a mark), lease (hash: owner record), fence (string: the lock's fencing counter),
--       queue (sorted set: waiter -> ticket in us), reserved (string: waiter, or token of a holder),
--       holds (sorted set: hold -> its time of entry in us; base -> 0), members (sorted set: token -> deadline in ms),
--       slots (sorted set: token -> slot), fences (hash: slot -> its fencing counter; all -> the largest of these)
-- While members hold the lock, the value of its key is a mark: `shared.` or `slots:L.`, then a nonce, so that no other
-- program takes the mark for its own token. The members' tokens are then in the key `members`, and a member's record in
-- `member:TOKEN`. The key `lease` has the fields `longest` (the longest ttl) and `revoked` (a time in us, and a user:
-- leases granted before that time are revoked).
-- ARGV: name, value, name, value; read as ARG.name. A missing argument is nil. The head of each script names the
--       script's arguments. Every script may get `claim`: exclusive, shared or slots:L; nil for a command that takes
--       no lease.
-- Answers are lists, too: name, value, name, value. Each answer has an `outcome`; the head of a script lists the
-- outcomes, with further fields in parentheses.
-- holders: a list for each holder, with value (the token), left (ms until the lease ends; -1: never), now (the server's
--       time in us) and the fields of the record; for a member with claim and slot. For a key of another type the list
--       has type and left. If members hold the lock, the answer has three more fields: members (how many there are),
--       next (ms until the first of their leases ends) and longest (their longest ttl, ms).
-- node: uptime (s), a space, and run_id; both '' if INFO is refused (node.lua).
-- The keys of the history are not in KEYS, to keep requests short: a server reads only 16 kB after its client
-- has gone (build.rs).
--   log (list: the runs, the run that began last in front), runs (hash): see log.lua in the folder history
--   visits (sorted set): see visits.lua there
--   closed (string: who closed the lock; expires when it opens): see close.lua
-- A script does its whole work at once: at most 5 ms for 1,000 of anything, and in proportion for more.
local K, L, F, Q, R, H, M, P, S = unpack(KEYS)
-- The usual names stand in the table from the start, because a table that grows is built anew at each doubling.
local ARG, given = {token = nil, ttl = nil, now = nil, host = nil, pid = nil, user = nil, label = nil, entry = nil,
  claim = nil}, ARGV
for i = 1, #given, 2 do ARG[given[i]] = given[i + 1] end
-- All other names begin with BASE.
local BASE = string.sub(L, 1, -#'lease' - 1)
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'

-- How long keys outlive their last use (ms): QUEUE_MS the queue, FENCE_MS the fencing counters and the largest number
-- of --newest, LOG_MS (101 days) the log, RUNS and the visits. A grant renews the expiry of these if fewer than 100
-- days are left, so they outlive the beginning of the last run by at least 100 days.
local QUEUE_MS, FENCE_MS, LOG_MS = '900000', '8640000000', '8726400000'

-- The time since 1970 by the server's clock, as text: us in microseconds, ms in milliseconds.
local time = redis.call('TIME')
local us = time[1] .. string.sub('00000' .. time[2], -6)
local ms = string.sub(us, 1, -4)

-- The value of the lock's key, a token or a mark. false: the lock is free. An error: the key is of another type.
local value = redis.pcall('GET', K)

-- Finds a run in the log. A run is a JSON object; each value is a text, because Lua cuts the digits of large numbers:
--   t token, b began (ms since 1970 by this server's clock), f fencing token, i slot, h host, p pid, u user, l label,
--   w waited (ms)
--   q: set if the run has --once-per; g: set if its call names its label, too
--   a: set if acquire took the lease
--   v: the number of --newest
--   n: the number of runs that the log keeps, if not 20
-- With its end, a run also has d (duration, ms), and an outcome: x (exit status), s (signal) or o (another outcome). y
-- is the user@host that revoked the lease. A run without an outcome goes on while its token holds the lock; otherwise
-- its lease ran out, and nobody knows when the job ended. A lease of acquire that had run out before its release
-- reported a status has the outcome o=expired, that status, and no duration.
-- RUNS has these fields:
--   success, failure: the last run that succeeded, the last that failed; a failure may have e, the last lines of the
--   job's standard error
--   succeeded, failed: the number of runs that succeeded, the number that failed
--   once: the success with --once-per that has the largest fencing token
--   expected: what calls with --once-per promise, three numbers: the period P, how often a success is due (both in ms),
--   and when the first such call came (ms since 1970)
-- These functions are called by pcall: the history never replaces a script's answer by an error. The calls come after
-- the script's main writes, because a server out of memory refuses only a script's first write.

-- The log never has more runs: see begin.lua.
local LOGGED = 220

local function is_of(text, token)
  return text and string.find(text, '"t":"' .. token .. '"', 1, true)
end

-- The position of this token's run in the log, and its text; nothing if the log lacks it.
local function find_run(token)
  local first = redis.call('LINDEX', LOG, 0) -- usually this run
  if is_of(first, token) then return 0, first end
  for i, text in ipairs(redis.call('LRANGE', LOG, 0, LOGGED)) do
    if is_of(text, token) then return i - 1, text end
  end
end

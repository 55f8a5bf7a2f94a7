-- The register of --newest, for a call with a number (ARG.newest): a string, `N ms pid host label`, with the largest
-- number that stood in line or was granted, and the first caller with that number. The register only grows, and lasts
-- as long as the fencing counter (tests/model/queue/newest.rs). This file sets superseded, the fields of that answer
-- if a larger number is there, and raise_newest, to be called only when the number gets a place in line or is
-- granted.
-- Cost: 1 call, and 1 for raise_newest.
local NEWEST, asked, known = BASE .. 'newest', tonumber(ARG.newest), nil
local newest = redis.pcall('GET', NEWEST)
if type(newest) == 'string' then
  local digits = string.match(newest, '^(%d+) ') or ''
  known = #digits <= 16 and tonumber(digits) or error('NONUMBER ' .. NEWEST)
elseif newest then
  error(string.find(newest.err, 'WRONGTYPE', 1, true) and 'NONUMBER ' .. NEWEST or newest.err)
end
superseded = known and known > asked and {newest = newest, clock = ms, node = who}

function raise_newest()
  if known and known >= asked then return redis.call('PEXPIRE', NEWEST, FENCE_MS) end
  redis.call('SET', NEWEST, table.concat({ARG.newest, ms, ARG.pid, ARG.host, ARG.label}, ' '), 'PX', FENCE_MS)
end

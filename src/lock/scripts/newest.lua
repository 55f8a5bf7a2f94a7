-- The register of --newest, a string: `N ms pid host label`. N is the largest number that stood in line or was granted.
-- The rest tells of the first caller with N. N only grows, until revoke.lua deletes the register. The register lasts as
-- long as the fencing counter (tests/model/queue/newest.rs).
-- A script uses this file if the call has a number, ARG.newest. If N is larger than ARG.newest, this file sets
-- `superseded`, the fields of the superseded answer. This file defines `raise_newest`. A script calls `raise_newest`
-- only when ARG.newest is queued or granted.
-- Cost: 1 call, and 1 for raise_newest.
local NEWEST, asked = BASE .. 'newest', tonumber(ARG.newest)
local newest = redis.call('GET', NEWEST)
local known = newest and tonumber(string.match(newest, '^%d+ ') or '')
if newest and not (known and known < 2 ^ 53) then return redis.error_reply('NONUMBER ' .. NEWEST .. ' is no number') end
superseded = known and known > asked and {newest = newest, clock = ms, node = who}

function raise_newest()
  if known and known >= asked then return redis.call('PEXPIRE', NEWEST, FENCE_MS) end
  redis.call('SET', NEWEST, table.concat({ARG.newest, ms, ARG.pid, ARG.host, ARG.label}, ' '), 'PX', FENCE_MS)
end

-- The register of --newest, NEWEST: `N ms pid host label`. N is the largest number that stood in line or was granted.
-- The rest is when it came first (ms since 1970), and who came. N only grows, until revoke.lua or forget_all.lua
-- deletes NEWEST, which lasts as long as the fencing counter (tests/model/queue/newest.rs).
-- A script uses this file if the caller has a number, ARG.newest. This file sets `superseded`: the fields of the answer
-- `superseded` if N is larger than ARG.newest, else nil or false. It defines `raise_newest`, which raises N to
-- ARG.newest, and is called only when ARG.newest is put in line or granted.
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

-- Looks, changes nothing.
-- ARG: bytes (how many of a value to return; nil: all), most (how many members to name), waiters (how many to name; nil: none),
--      log (how many runs to tell; nil: none), must (fails if the log cannot be read)
-- Answers: free (waiting, clock, node), reserved (left, waiting, clock, node), held (holders, one that redlock wrote with holds;
--      waiting, clock); clock is in ms
--      with waiters: waiters (name, ticket, name, ticket, ...; the first in line)
--      with log: runs (the newest, and the last success), running, expired (that have not said their end): lines, see journal.lua
local fields = value == false and {} or holders(tonumber(ARG.most))
fields.waiting = redis.call('ZCARD', Q)
fields.waiters = ARG.waiters and redis.call('ZRANGE', Q, 0, ARG.waiters - 1, 'WITHSCORES')
fields.clock = digits(server_ms())
if ARG.must then tell_runs(fields) elseif ARG.log then pcall(tell_runs, fields) end
if value == false then
  fields.left, fields.node = redis.call('PTTL', R), flat(node())
  return seen(fields.left == -2 and 'free' or 'reserved', fields)
end
for _, holder in ipairs(fields.holders) do
  holder[#holder + 1] = 'holds'
  holder[#holder + 1] = count_holds()
end
return seen('held', fields)

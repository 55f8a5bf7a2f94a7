-- Looks, changes nothing.
-- ARG: bytes (how many of a value to return; nil: all), most (how many members to name), log (how many runs to tell; nil: none)
-- Answers: free (waiting, node), reserved (left, waiting, node), held (holders, one that redlock wrote with holds; waiting)
--      with log: runs (the newest, and the last success), running, expired (that have not said their end): lines, see
--      journal.lua; clock (ms)
local fields = value == false and {} or holders(tonumber(ARG.most))
fields.waiting = redis.call('ZCARD', Q)
if ARG.log then tell(fields) end
if value == false then
  fields.left, fields.node = redis.call('PTTL', R), flat(node())
  return seen(fields.left == -2 and 'free' or 'reserved', fields)
end
for _, holder in ipairs(fields.holders) do
  holder[#holder + 1] = 'holds'
  holder[#holder + 1] = count_holds()
end
return seen('held', fields)

-- Looks, changes nothing.
-- ARG: bytes (how many of a value to return; nil: all), most (how many members to name)
-- Answers: free (waiting, node), reserved (left, waiting, node), held (holders, one that redlock wrote with holds; waiting)
local waiting = redis.call('ZCARD', Q)
if value == false then
  local left = redis.call('PTTL', R)
  return seen(left == -2 and 'free' or 'reserved', {left = left, waiting = waiting, node = flat(node())})
end
local before = holders(tonumber(ARG.most))
for _, holder in ipairs(before.holders) do
  holder[#holder + 1] = 'holds'
  holder[#holder + 1] = count_holds()
end
before.waiting = waiting
return seen('held', before)

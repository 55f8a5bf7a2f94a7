-- Looks, changes nothing.
-- ARG: bytes (how many of a value to return; nil: all)
-- Answers: free (waiting, node), reserved (left, waiting, node), held (holders, one that redlock wrote with holds; waiting)
local waiting = redis.call('ZCARD', Q)
if value == false then
  local left = until_free()
  return seen(left == -2 and 'free' or 'reserved', {left = left, waiting = waiting, node = flat(node())})
end
local holders = holders()
for _, holder in ipairs(holders) do
  holder[#holder + 1] = 'holds'
  holder[#holder + 1] = count_holds()
end
return seen('held', {holders = holders, waiting = waiting})

-- Stands behind members.lua in what goes through all members: a part of them at a time, in the order in which they run
-- out, so that one that is extended meanwhile comes once more. Cost: one call.
local PART = 1000

-- The members from a position on (nil: from the first), and the next position, nil behind the last. A position is a
-- deadline, and the number of members with that deadline that were before it.
local function part_of_members(from)
  local deadline, before = string.match(from or '0 0', '^(%d+) (%d+)$')
  local list = redis.call('ZRANGE', M, deadline, '+inf', 'BYSCORE', 'LIMIT', before, PART, 'WITHSCORES')
  local tokens, last, alike = {}, list[#list], 0
  for i = 1, #list, 2 do
    tokens[#tokens + 1] = list[i]
    if list[i + 1] == last then alike = alike + 1 end
  end
  if #tokens < PART then return tokens end
  return tokens, last .. ' ' .. digits(last == deadline and before + alike or alike)
end

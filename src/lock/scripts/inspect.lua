-- Tells who has a lock and who waits for it. Changes nothing, except that state.lua forgets members whose lease has
-- ended.
-- ARG: bytes (how many bytes of a value to return; nil: all), most (how many holders to return),
--      named (a token: its holder is returned, too), waiters (how many waiters to return; nil: none)
-- Answers: free (waiting, clock, node), reserved (left, waiting, clock, node),
--      held (holders, each with holds; waiting, clock). clock is in ms.
--      With ARG.waiters each answer also has: waiters (the first in line, as name, ticket, name, ticket, ...),
--      listening (1 for each waiter that listens, 0 for each that does not; nil if PUBSUB is refused).
-- Cost: 7 calls.
-- include lease
local fields = value == false and {} or holders(tonumber(ARG.most))
if claim and ARG.named and is_held_by(ARG.named) then fields.holders[#fields.holders + 1] = holder(ARG.named) end
fields.waiting = redis.call('ZCARD', Q)
fields.waiters = ARG.waiters and redis.call('ZRANGE', Q, 0, ARG.waiters - 1, 'WITHSCORES')
fields.clock = ms

local function listening(waiters)
  local channels, counts = {}, {}
  for i = 1, #waiters, 2 do channels[#channels + 1] = BASE .. 'w:' .. waiters[i] end
  local told = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels))
  if told.err then return nil end
  for i = 2, #told, 2 do counts[#counts + 1] = math.min(told[i], 1) end
  return counts
end

fields.listening = fields.waiters and fields.waiters[1] and listening(fields.waiters)
if value == false then
  fields.left, fields.node = redis.call('PTTL', R), node()
  return answer_from_reads(fields.left == -2 and 'free' or 'reserved', fields)
end
local holds = not claim and count_holds() or 1
for _, holder in ipairs(fields.holders) do
  holder[#holder + 1] = 'holds'
  holder[#holder + 1] = holds
end
return answer_from_reads('held', fields)

-- Reports who holds a lock and who waits for it. Changes nothing, except that state.lua forgets members whose lease is
-- over.
-- ARG: bytes (how many bytes of a token to return; nil: all), most (how many holders to return), named (a token: its
--      holder is returned, too; nil: none), waiters (how many waiters to return; nil: none)
-- Answers: free (waiting: how many wait, clock in ms, node: uptime and run_id, see keys.lua),
--      reserved (left: ms until the reservation ends, waiting, clock, node), held (holders, each with holds: how many
--      holds the lease has; waiting, clock)
--      If the lock is closed, each answer has: closed (who closed it), closed_left (ms until it opens).
--      With ARG.waiters each answer has: waiters (the first in line, as name, ticket, name, ticket, ...), listening
--      (for each of these waiters 1 if it listens, 0 if not; nil if PUBSUB is refused).
-- Cost: 8 calls.
-- include lease
local CLOSED = BASE .. 'closed'
local fields = value == false and {} or holders(tonumber(ARG.most))
if claim and ARG.named and is_held_by(ARG.named) then fields.holders[#fields.holders + 1] = holder(ARG.named) end
fields.waiting = redis.call('ZCARD', Q)
fields.waiters = ARG.waiters and (fields.waiting > 0 and redis.call('ZRANGE', Q, 0, ARG.waiters - 1, 'WITHSCORES') or {})
fields.clock, fields.closed = ms, redis.call('GET', CLOSED)
fields.closed_left = fields.closed and redis.call('PTTL', CLOSED)

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

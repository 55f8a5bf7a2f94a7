-- Stands behind take.lua: all that comes before a grant, or instead of it.

-- Grants nothing. If an earlier try of this caller held the lock, that is free now, and the next waiter is called.
local function turned_away(outcome, fields)
  if freed then hand_over() end
  return answer_from_reads(outcome, fields)
end

-- Puts the waiter in line, with its old ticket if it has one.
local function refused(outcome, fields)
  with_facts(fields)
  if me and value ~= nil then
    local score = redis.call('ZSCORE', Q, me)
    fields.queued = not score and 1
    local ticket = ARG.ticket or score and digits(score) or behind_all(Q)
    if not score then redis.call('ZADD', Q, ticket, me) end
    redis.call('PEXPIRE', Q, QUEUE_MS) -- at each look of any waiter: the first in line may be dead or frozen
    fields.rank, fields.ticket = redis.call('ZRANK', Q, me), ticket
  end
  return turned_away(outcome, fields)
end

-- Takes the lock, and closes the runs that have ended without a word.
local function take_over()
  local reply = take()
  close_runs()
  return reply
end

-- Free places, the next ones: all nodes name about the same.
local function free_places()
  local list, place = {}, free_from(tonumber(ARG.place))
  while place and place ~= list[1] and #list < 32 do
    list[#list + 1] = place
    place = free_from((place + 1) % limit)
  end
  return list
end

-- The last success that had --once-per too, if it began less than ARG.once ms ago. If the clock was set back
-- since, the success may lie in the future: it counts if that is by less than ARG.once.
local function recent_success()
  local run = redis.call('HGET', RUNS, 'once')
  local began = run and tonumber(string.match(run, '"b":"(%d+)"'))
  return began and math.abs(server_ms() - began) < tonumber(ARG.once) and {success = run, clock = digits(server_ms())}
end

-- Reserves the lock for the holder that this run of the server has forgotten, unless that was here again since the
-- restart: then the counter is not below its fencing token.
local function keep_for_holder()
  local run_id, left, fence = ARG.seen_run_id, tonumber(ARG.seen_left), tonumber(ARG.seen_fence)
  if not ARG.seen or not run_id or who.run_id == '' or who.run_id == run_id then return false end
  if not left or left < 1 or not fence then return false end
  local count = counter(ARG.seen_slot)
  if count > fence or count == fence and ARG.seen_claim ~= 'shared' then return false end
  redis.call('SET', R, ARG.seen, 'PX', left)
  return ARG.seen
end

if is_held_by(ARG.token) then -- an earlier reply was lost
  lengthen(ARG.token, tonumber(ARG.ttl))
  return granted(redis.call('HGET', record_of(ARG.token), 'fence') or '0', shape and redis.call('ZSCORE', P, ARG.token))
end
local ran = ARG.once and (value == false or redis.call('HEXISTS', L, 'kept') == 1) and recent_success()
if ran then return turned_away('ran', ran) end
if value ~= false and shape ~= ARG.claim then
  local is_other = value ~= nil and (limit or shape and shape ~= 'shared')
  if not is_other then return refused('held', holders(10)) end
  return turned_away('other-shape', with_facts(holders(10)))
end

local reserved = redis.call('GET', R) or value == false and keep_for_holder()
if is_young then return refused('young', {}) end
if not fits(ARG.claim) then return refused('held', holders(10)) end
if ARG.place and not is_vacant() then return turned_away('taken', with_facts({free = free_places()})) end
if me and reserved == me then
  redis.call('DEL', R)
  redis.call('ZREM', Q, me)
  return take_over()
end
if not reserved then
  if redis.call('EXISTS', Q) == 0 then return take_over() end
  if me and ARG.ticket then redis.call('ZADD', Q, 'NX', ARG.ticket, me) end -- thawed: its old ticket
  reserved = call_next(me)
  if reserved == nil then return refused('held', holders(10)) end -- one is before it that does not fit
  if not reserved or reserved == me then return take_over() end
end
-- Another is called, and there is room for both: who does not wait would be turned away for nothing.
local alike = string.sub(reserved, 1, 1) == (limit and 'p' or 's') and ARG.claim ~= 'exclusive'
if alike and redis.call('EXISTS', Q) == 0 and (not limit or not shape or redis.call('ZCARD', P) + 2 <= limit) then return take_over() end
return refused('reserved', {left = redis.call('PTTL', R)})

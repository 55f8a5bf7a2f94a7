-- Ends others' leases: safely (they can no longer be extended, so their jobs are stopped) or at once.
-- ARG: token (nil: all that there are), by (user@host), force, from (goes on there)
-- Answers: revoked (holders), released (holders), foreign (holders: a key of another type, or a lease whose holder
--      cannot be told), gone (node), other (holders)
--      from: where to go on with the leases that are kept though their jobs have ended, which are freed
-- Cost: 7 calls; with `force` 15.
local FREED = 100

-- The lock was freed for all its holders: runs that began before have ended by that, see close.lua.
local function remember_force()
  if redis.call('EXISTS', OPEN) == 0 then return end
  redis.pcall('HSET', RUNS, 'forced', cjson.encode({t = '', y = short(ARG.by, 100), b = digits(server_ms())}))
  redis.pcall('PEXPIRE', RUNS, LOG_MS)
end

-- Ends the lease of this token. Returns the outcome.
local function end_one(token)
  local record = record_of(token)
  if not ARG.force then redis.call('HSETNX', record, 'revoked', ARG.by) end
  if not ARG.force and redis.call('HEXISTS', record, 'kept') == 0 then return 'revoked' end
  remember_end(token, 'revoked', nil, ARG.by)
  drop(token)
  return 'released'
end

-- Ends the leases of all members at once.
local function force_all()
  local first = redis.call('ZRANGE', M, 0, FREED - 1)
  for _, member in ipairs(first) do remember_end(member, 'revoked', nil, ARG.by) end
  members.forget(first) -- the records of the others run out
  remember_force()
  members.delete_mark()
  return 'released'
end

-- Revokes all members, and frees those whose jobs have ended, some at a time. Returns the outcome, and where to go on.
local function revoke_all()
  if not ARG.from then redis.call('HSET', L, 'revoked', server_us() .. ' ' .. ARG.by) end
  if redis.call('HEXISTS', L, 'some_kept') == 0 then return 'revoked' end
  local part, from = part_of_members(ARG.from)
  local kept = {}
  for _, token in ipairs(part) do
    if #kept < FREED and redis.call('HEXISTS', record_of(token), 'kept') == 1 then kept[#kept + 1] = token end
  end
  if #kept > 0 then
    members.forget(kept)
    members.expire_all()
    from = shape and (ARG.from or '0 0')
  end
  return shape and 'revoked' or 'released', from
end

if value == false then return answer_without_lease() end
if value == nil then return answer_from_reads('foreign', holders(10)) end
if ARG.token and ARG.token ~= value and not is_held_by(ARG.token) then return answer_from_reads('other', holders(10)) end
local token, ended = ARG.token or not shape and value, nil
if token and not ARG.force and not read_record(token).ttl then return answer_from_reads('foreign', holders(10)) end
ended = token and {holders = {holder(token)}} or holders(10)
local outcome
if token then outcome = end_one(token) elseif ARG.force then outcome = force_all() else outcome, ended.from = revoke_all() end
if shape or value == false then hand_over() end
return answer(outcome, ended)

-- Ends the leases of others: safely (the leases can no longer be extended, so their jobs are stopped) or at once.
-- ARG: token (nil: all leases), by (user@host of the caller), force (given: end the leases at once)
-- Answers: revoked (holders: their leases can no longer be extended), released (holders: their leases have ended),
--      foreign (holders: a key of another type, or a lease whose holder cannot be told to stop),
--      gone (the lock is free; node: uptime and run_id, see keys.lua), other (holders: others have the lock)
-- Cost: 6 calls; with `force` 15.
-- include line, lease, end

-- Revokes the lease of this token. With ARG.force, ends it at once, and raises the counter above its fencing token, so
-- that recreate.lua on a single node refuses to bring it back. Returns the outcome: 'revoked' or 'released'.
local function end_one(token)
  local record, slot = record_of(token), claim and redis.call('ZSCORE', P, token)
  if not ARG.force then
    redis.call('HSETNX', record, 'revoked', ARG.by)
    return 'revoked'
  end
  local count = counter(slot) -- first: this may fail
  drop(token)
  set_counter(digits(count + 1), slot)
  pcall(end_run, token, {o = 'revoked', y = ARG.by})
  return 'released'
end

-- Ends the leases of all members at once, and notes it for each run that the log has.
local function force_all()
  local tokens, is_member = redis.call('ZRANGE', M, 0, -1), {}
  for _, token in ipairs(tokens) do is_member[token] = true end
  local count = math.max(counter(), counter('all')) + 1
  members.forget(tokens)
  members.expire_all()
  set_counter(digits(count))
  pcall(function()
    for i, text in ipairs(redis.call('LRANGE', LOG, 0, LOGGED - 1)) do
      local is_read, run = pcall(cjson.decode, text)
      if is_read and is_member[run.t] then pcall(end_run, run.t, {o = 'revoked', y = ARG.by}, i - 1, text) end
    end
  end)
  return 'released'
end

local function revoke_all()
  redis.call('HSET', L, 'revoked', us .. ' ' .. ARG.by)
  return 'revoked'
end

if value == false then return answer_without_lease() end
if value == nil then return answer_from_reads('foreign', holders(10)) end
local is_other = ARG.token and ARG.token ~= value and not is_held_by(ARG.token)
if is_other then return answer_from_reads('other', holders(10)) end
local token, ended = ARG.token or not claim and value, nil
if token and not ARG.force and not read_record(token).ttl then return answer_from_reads('foreign', holders(10)) end
ended = token and {holders = {holder(token)}} or holders(10)
local outcome
if token then outcome = end_one(token) elseif ARG.force then outcome = force_all() else outcome = revoke_all() end
if claim or value == false then hand_over() end
return answer(outcome, ended)

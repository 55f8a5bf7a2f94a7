-- Stands behind release.lua: a lease that is not here, or has come back after its loss was told.

if is_held then return release_hold(correct_end) end
local known = told_end(ARG.token)
local is_by_token = not ARG.began -- not by the run itself, which says later what came of it
-- Where others have the lock, it is the answers of all nodes together that say whether it was lost.
local run_id = not known and ARG.run_id and (ARG.gone or is_vacant()) and node().run_id
if run_id and run_id ~= '' and run_id ~= ARG.run_id then
  remember_forgotten()
elseif ARG.gone then
  correct_end(ARG.token, ARG.gone, ARG.code)
elseif ARG.code and is_by_token then
  correct_end(ARG.token, nil, ARG.code, nil, true)
end
-- Restarted: a waiter that remembers the lease keeps the lock for this holder, see take.lua.
local outer = not ARG.hold or ARG.hold == 'base'
if value ~= false and not shape or not outer or redis.call('GET', R) ~= ARG.token then
  local reply = answer_without_lease()
  if known then reply[#reply + 1], reply[#reply + 2] = 'known', known end
  return reply
end
if keep then
  redis.call('PEXPIRE', R, keep)
else
  redis.call('DEL', R)
  leave_note()
  hand_over()
end
return answer('released')

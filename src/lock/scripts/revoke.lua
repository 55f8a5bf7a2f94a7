-- Ends another's lease: safely (it can no longer be extended, so its job is stopped) or at once.
-- ARG: prefix (of the token; nil: any token), by (the signature), force
-- Answers: revoked (holders), released (holders), foreign (holders: a key of another type, or a lease whose holder cannot be
--      told), gone (node), other (holders)
if value == false then return not_mine() end
local prefix, ended, outcome = ARG.prefix or '', {}, 'released'
for _, token in ipairs(shape and redis.call('ZRANGE', M, 0, -1) or {value}) do
  if string.sub(token, 1, #prefix) == prefix then
    if not ARG.force and not lease(token).ttl then return seen('foreign', holders(10)) end
    if #ended < 10 then ended[#ended + 1] = holder(token) end
    local record = record_of(token)
    if not ARG.force then redis.call('HSETNX', record, 'revoked', ARG.by) end
    if ARG.force or redis.call('HEXISTS', record, 'kept') == 1 then
      note_end(token, 'revoked', nil, ARG.by)
      drop(token)
    else
      outcome = 'revoked'
    end
  end
end
if #ended == 0 then return seen(value == nil and 'foreign' or 'other', holders(10)) end
if shape or value == false then hand_over() end
return answer(outcome, {holders = ended})

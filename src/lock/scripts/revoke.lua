-- Ends another's lease: safely (it can no longer be extended, so its job is stopped) or at once.
-- ARG: prefix (of the token; nil: any token), by (the signature), force
-- Answers: revoked (holders), released (holders), foreign (holders: a key of another type, or a lease whose holder cannot be
--      told), gone (node), other (holders)
if value == false then return not_mine() end
if shape then
  local ended, revoked, freed = {}, false, false
  for _, token in ipairs(redis.call('ZRANGE', M, 0, -1)) do
    if not ARG.prefix or string.sub(token, 1, #ARG.prefix) == ARG.prefix then
      if #ended < 10 then ended[#ended + 1] = holder(token) end
      local record = record_of(token)
      if not ARG.force and lease(token).ttl then redis.call('HSETNX', record, 'revoked', ARG.by) end
      if ARG.force or redis.call('HEXISTS', record, 'kept') == 1 then
        note_end(token, 'revoked', nil, ARG.by)
        forget(token)
        freed = true
      else
        revoked = true
      end
    end
  end
  if #ended == 0 then return seen('other', holders(10)) end
  if freed then settle() end
  hand_over()
  return answer(revoked and 'revoked' or 'released', {holders = ended})
end
local before = holders(10)
if value == nil then return seen('foreign', before) end
if ARG.prefix and string.sub(value, 1, #ARG.prefix) ~= ARG.prefix then return seen('other', before) end
if not ARG.force then
  if not lease(value).ttl then return seen('foreign', before) end
  redis.call('HSETNX', L, 'revoked', ARG.by)
  if redis.call('HEXISTS', L, 'kept') == 0 then return answer('revoked', before) end
end
note_end(value, 'revoked', nil, ARG.by)
drop(value)
hand_over()
return answer('released', before)

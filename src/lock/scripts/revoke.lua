-- Ends another's lease: safely (it can no longer be extended, so its job is stopped) or at once.
-- ARG: prefix (of the token; nil: any token), by (the signature), force
-- Answers: revoked (holders), released (holders), foreign (holders: a key of another type, or a lease whose holder cannot be
--      told), gone (node), other (holders)
local before = {holders = holders()}
if value == false then return not_mine() end
if value == nil then return seen('foreign', before) end
if ARG.prefix and string.sub(value, 1, #ARG.prefix) ~= ARG.prefix then return seen('other', before) end
if not ARG.force then
  if not lease().ttl then return seen('foreign', before) end
  redis.call('HSETNX', L, 'revoked', ARG.by)
  if redis.call('HEXISTS', L, 'kept') == 0 then return answer('revoked', before) end
end
drop()
hand_over()
return answer('released', before)

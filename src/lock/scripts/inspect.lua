-- Looks, changes nothing.
-- Returns {'free', PTTL of the reservation, waiting, reserved, now, identity} or {'held', value, PTTL, owner record, holds, waiting, now}
--      or {'foreign', type, PTTL}; now in us (0: refused)
local value = holder()
if value == nil then return {'foreign', redis.call('TYPE', K).ok, redis.call('PTTL', K)} end
local waiting, now = redis.call('ZCARD', Q), string.format('%.0f', server_us())
if not value then return {'free', redis.call('PTTL', R), waiting, redis.call('EXISTS', R), now, identity()} end
return {'held', value, redis.call('PTTL', K), owner(value), math.max(redis.call('ZCARD', H), 1), waiting, now}

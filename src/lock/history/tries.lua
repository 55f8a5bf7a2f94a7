-- Counts runs for --tries in TRIES, a sorted set: token -> beginning (ms since 1970 by this server's clock). TRIES keeps
-- as many runs as --tries may allow, and lasts as long as the log.
local TRIES, TRIED = BASE .. 'tries', 100

local function count_try(began)
  redis.call('ZADD', TRIES, began, ARG.token)
  if redis.call('ZCARD', TRIES) > TRIED then redis.call('ZPOPMIN', TRIES) end
  redis.call('PEXPIRE', TRIES, LOG_MS)
end

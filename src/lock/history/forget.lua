-- needs log
-- Deletes the run of this token, because nothing ran under it. It was no try either.
local function forget_run(token)
  if ARG.tries then redis.pcall('ZREM', BASE .. 'tries', token) end
  local _, text = find_run(token)
  if text then redis.call('LREM', LOG, 1, text) end
end

-- Stands behind lease.lua in what begins, ends or tells runs: the memory of the last runs of a lock. It must never fail a grant or
-- a release, so it is written last there, by pcall, and calls no command that the other scripts do not call.
-- Keys, which are named here, as a longer request would not be read to its end: log:open (hash: token -> run that has not ended),
-- log (string: runs, newest first, a line each). A run is: how many to keep, token (its beginning), host, pid, user, label,
-- began (ms), waited (ms), fence; and if its end is known: ended (ms), outcome, code (exit status or signal), by.
-- Between them stands U+001F. The newest runs are kept, and besides the last that succeeded.
local LOG = BASE .. 'log'
local SUCCESS = '\31exited\0310\31'

-- The last run in a log that succeeded, and where it begins.
local function last_success(log)
  local at = string.find(log, SUCCESS, 1, true)
  local from = at and string.match(string.sub(log, 1, at), '^.*\n()') or 1
  return at and string.match(log, '^[^\n]*', from), from
end

-- The newest runs of a log, so many, and the last that succeeded.
local function newest(most, log)
  local last = 0
  for _ = 1, most do
    last = string.find(log, '\n', last + 1, true)
    if not last then return log end
  end
  local success, from = last_success(log)
  return string.sub(log, 1, last - 1) .. (success and from > last and '\n' .. success or '')
end

local function try(write)
  local ok, fault = pcall(write)
  if not ok then unlogged = type(fault) == 'table' and fault.err or fault end
end

-- Moves a run that is open to the log, with its end, if that is known. An unused lease leaves nothing.
local function note_end(token, outcome, code, by)
  try(function()
    local run = redis.call('HGET', OPEN, token)
    redis.call('HDEL', OPEN, token)
    if not run or outcome == 'unused' then return end
    local most = tonumber(string.match(run, '%d+'))
    if outcome then run = table.concat({run, digits(server_ms()), outcome, code or '', by or ''}, '\31') end
    local log = redis.call('GET', LOG)
    redis.call('SET', LOG, newest(most, log and run .. '\n' .. log or run), 'PX', FENCE_MS)
  end)
end

-- The last run that succeeded, if it began less than ARG.once ms ago.
local function recent_success()
  local now, run = server_ms(), last_success(redis.call('GET', LOG) or '')
  local began = run and tonumber(string.match(run, string.rep('[^\31]*\31', 6) .. '(%d+)')) or 0
  return began > 0 and now - began < tonumber(ARG.once) and {runs = run, clock = digits(now)}
end

-- So many characters of a text, without control characters.
local function short(text, most)
  local count = 0
  for at in string.gmatch(#text > most and text or '', '()[^\128-\191]') do
    count = count + 1
    if count > most then text = string.sub(text, 1, at - 1) break end
  end
  return (string.gsub(text, '%c', '?'))
end

-- A lease has begun. What is still open of others, which have ended without a word, goes to the log.
local function note_begin(fence)
  try(function()
    -- Beside others it looks at all only when some have run out.
    local swept = shape and redis.call('HDEL', L, 'swept') == 1
    local open = (not shape or swept or redis.call('ZCARD', M) == 1) and redis.call('HGETALL', OPEN) or {}
    for i = 1, #open, 2 do
      if not mine(open[i]) then note_end(open[i]) end
    end
    if not ARG.log then return end
    local began = server_ms() - (tonumber(ARG.held) or 0)
    local run = {ARG.log, string.sub(ARG.token, 1, 8), short(ARG.host, 60), ARG.pid, short(ARG.user, 32), short(ARG.label, 40),
      digits(began), ARG.waited or '', digits(fence)}
    redis.call('HSET', OPEN, ARG.token, table.concat(run, '\31'))
    redis.call('PEXPIRE', OPEN, FENCE_MS)
  end)
end

-- Adds what is known of the last runs to an answer.
local function tell_runs(fields)
  local open = redis.call('HGETALL', OPEN)
  for i = 1, #open, 2 do
    local what = mine(open[i]) and 'running' or 'expired'
    fields[what] = (fields[what] or '') .. open[i + 1] .. '\n'
  end
  fields.runs = newest(tonumber(ARG.log), redis.call('GET', LOG) or '')
end

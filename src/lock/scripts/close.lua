-- Stands behind journal.lua: runs that have ended without a word of theirs.
local CLOSED = 100 -- so many of them are closed by one grant

-- Who has freed the lock for all its holders, and when, if that was done.
local function last_force()
  local forced = redis.call('HGET', RUNS, 'forced')
  return forced and cjson.decode(forced)
end

-- When and with which outcome force has ended the run: if its lease, which would have lasted until then, was alive at
-- that time.
local function end_by(forced, run, deadline)
  local at = forced and tonumber(forced.b)
  if not at or at > server_ms() or began_at(run) > at or (deadline or at) < at then return nil end
  return at, outcome_of('revoked', nil, forced.y)
end

-- Closes the runs that have ended without a word: of an exclusive lock all others, else those whose lease has run out.
local function close_runs()
  pcall(function()
    if server_ms() == 0 then return end
    local now = digits(server_ms())
    local over = shape and redis.call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'LIMIT', 0, CLOSED, 'WITHSCORES')
      or redis.call('ZRANGE', ENDS, 0, CLOSED - 1, 'WITHSCORES')
    if #over == 0 or #over == 2 and over[1] == ARG.token then return end
    local closed, first, most, forced = {}, math.huge, ARG.entry and most_of(ARG.entry), last_force()
    for i = 1, #over, 2 do
      local run = over[i] ~= ARG.token and take_open(over[i])
      if run then
        local ended = math.min(over[i + 1], now)
        local at, outcome = end_by(forced, run, ended)
        run, most = with_end(run, at or ended, outcome or ''), most or most_of(run)
        first = math.min(first, at or ended)
        closed[#closed + 1] = run
        if outcome then count_end(run) end
      end
    end
    if #closed > 0 then push(closed, first, most) end
  end)
end

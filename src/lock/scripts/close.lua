-- Stands behind journal.lua: runs that have ended without a word of theirs.

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
-- They count neither as successes nor as failures, and only those that the log keeps are read and written.
local function close_runs()
  pcall(function()
    local now, tokens, deadlines = digits(server_ms()), {}, {}
    local over = shape and redis.call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'WITHSCORES')
      or redis.call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
    for i = 1, #over, 2 do
      if over[i] ~= ARG.token then tokens[#tokens + 1], deadlines[#tokens + 1] = over[i], over[i + 1] end
    end
    if #tokens == 0 then return end
    local most = most_of(ARG.entry or redis.call('HGET', OPEN, tokens[#tokens]) or '')
    local from = math.max(#tokens - most, 1) -- one more than it keeps: so it is cut
    local runs, closed, first, forced = redis.call('HMGET', OPEN, unpack(tokens, from)), {}, math.huge, last_force()
    for i = 1, #tokens, UNPACKED do
      local last = math.min(i + UNPACKED - 1, #tokens)
      redis.call('HDEL', OPEN, unpack(tokens, i, last))
      redis.call('ZREM', ENDS, unpack(tokens, i, last))
    end
    for i, run in ipairs(runs) do
      if run then
        local ended = math.min(deadlines[from + i - 1], now)
        local at, outcome = end_by(forced, run, ended)
        closed[#closed + 1] = with_end(run, at or ended, outcome or '')
        first = math.min(first, at or ended)
      end
    end
    if #closed > 0 then push(closed, first, most) end
  end)
end

-- Stands behind journal.lua: runs that have ended without a word of theirs.
local CLOSED = 100 -- so many of them are closed by one grant

-- Who has freed the lock for all its holders, and when, if that was done.
local function last_force()
  local forced = redis.call('HGET', RUNS, 'forced')
  return forced and cjson.decode(forced)
end

-- True if the lease of the run, which would have lasted until then, was alive at that time; then it has ended by that.
local function is_forced(run, forced, deadline)
  local at = forced and tonumber(forced.b)
  if not at or at > server_ms() or tonumber(run.b) > at or (deadline or at) < at then return false end
  set_end(run, 'revoked', nil, forced.y, forced.b)
  return true
end

-- Closes the runs that have ended without a word: of an exclusive lock all others, else those whose lease has run out.
local function close_runs()
  pcall(function()
    if server_ms() == 0 then return end
    local now = digits(server_ms())
    local over = shape and redis.call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'LIMIT', 0, CLOSED, 'WITHSCORES')
      or redis.call('ZRANGE', ENDS, 0, CLOSED - 1, 'WITHSCORES')
    local tokens, ends = {}, {}
    for i = 1, #over, 2 do
      if over[i] ~= ARG.token then
        tokens[#tokens + 1], ends[#ends + 1] = over[i], math.min(over[i + 1], now)
      end
    end
    if #tokens == 0 then return end
    local closed, first, most, forced = {}, math.huge, tonumber(ARG.log), last_force()
    for i, run in ipairs(take_open(tokens)) do
      if run then
        set_time(run, ends[i])
        local is_counted = is_forced(run, forced, ends[i])
        most = most or tonumber(run.n) or 20
        first, run.n = math.min(first, run.b + run.d), nil
        closed[#closed + 1] = cjson.encode(run)
        if is_counted then count_end(run, closed[#closed]) end
      end
    end
    if #closed > 0 then push(closed, first, most) end
  end)
end

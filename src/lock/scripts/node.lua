-- Returns the field `node` of an answer, the seconds since the server's start, and its run_id. The seconds are negative
-- if somebody has set the clock to a time before the start. If INFO is refused, they are nil, and the run_id is ''.
-- Cost: INFO, as much as five other calls.
local function node()
  local info, uptime, run_id = redis.pcall('INFO', 'server'), '', ''
  if type(info) == 'string' then
    local _, last = string.find(info, 'uptime_in_seconds:', 1, true) -- a plain search is the fastest
    uptime = string.match(info, '^[%w-]*', last + 1)
    _, last = string.find(info, 'run_id:', 1, true)
    run_id = string.sub(info, last + 1, string.find(info, '\r', last, true) - 1)
  end
  return uptime .. ' ' .. run_id, tonumber(uptime), run_id
end

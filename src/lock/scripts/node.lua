-- Stands behind prelude.lua and members.lua: what a node tells of itself.

-- The identity of the node: seconds since its start (below zero if its clock was set back behind that), and its run_id.
-- Cost: INFO, as much as five other calls.
local function node()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return {uptime = '', run_id = ''} end
  local function field(name)
    local _, last = string.find(info, name, 1, true) -- a plain search is the fastest
    return string.match(info, '^[%w-]*', (last or #info) + 1)
  end
  return {uptime = field('uptime_in_seconds:'), run_id = field('run_id:')}
end

-- An answer that rests on what was read alone. A replica must not give it: it refuses the write, which changes nothing.
local function answer_from_reads(outcome, fields)
  local refused = redis.pcall('HDEL', L, '')
  if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then error(refused.err) end
  return answer(outcome, fields)
end

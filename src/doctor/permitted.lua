#!lua
-- Reports which commands this user has no right to run on a lock's keys and channels. Runs none of the commands. The
-- script is not declared read-only: if a server refuses all writes, it refuses this script, too.
-- ARGV: 1 the lock  2 another key of the lock  3 a channel of the lock  4… the commands
-- Returns the commands that are denied. Servers before Redis 7 do not know `#!lua`, and cannot answer.

-- The arguments for a request with this command. There must be enough arguments: if a request is too short, Redis 7.0
-- reads past the end of the request, and may crash.
local function request(command, key)
  if command == 'eval' or command == 'evalsha' then return {'', '1', key} end
  if command == 'publish' then return {ARGV[3], ''} end
  if command == 'subscribe' or command == 'unsubscribe' then return {ARGV[3]} end
  if command == 'del' or command == 'unlink' or command == 'exists' then return {key} end
  return {key, '', ''}
end

-- Redis 8 judges no request that is too long, so the arguments are left out one by one until it answers.
local function may(command, key)
  local arguments = request(command, key)
  repeat
    local known, allowed = pcall(redis.acl_check_cmd, command, unpack(arguments))
    if known then return allowed end
  until not table.remove(arguments)
  return false
end

local denied = {}
for i = 4, #ARGV do
  local command = ARGV[i]
  if not (may(command, ARGV[1]) and may(command, ARGV[2])) then table.insert(denied, command) end
end
return denied

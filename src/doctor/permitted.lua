-- Which commands this user may not run on a lock's keys and channels. Runs none of them.
-- ARGV: 1 the lock  2 another key of it  3 a channel of it  4… the commands
-- Returns the commands, or nil where the server cannot be asked (before Redis 7)
if not redis.acl_check_cmd then return nil end

local function may(command, key)
  local args = {key, '', ''}
  if command == 'eval' or command == 'evalsha' then args = {'', '1', key} end
  if command == 'subscribe' or command == 'publish' then args = {ARGV[3], ''} end
  local known, allowed = pcall(redis.acl_check_cmd, command, unpack(args))
  return known and allowed
end

local denied = {}
for i = 4, #ARGV do
  local command = ARGV[i]
  if not (may(command, ARGV[1]) and may(command, ARGV[2])) then table.insert(denied, command) end
end
return denied

-- Tells the newest hold of a lease, and its age: the one that its plain token gives up.
-- ARGV: 2 token
-- Returns {'holds', hold, when it was entered} or {'gone', identity}
if holder() ~= ARGV[2] then return {'gone', identity()} end
local newest = redis.call('ZREVRANGE', H, 0, 0, 'WITHSCORES')
return {'holds', newest[1] or 'base', newest[2] or '0'}

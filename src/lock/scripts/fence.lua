-- Writes the fencing token of a lease back to a node that is behind, if the lease is still there and the node not ahead.
-- ARGV: 2 token  3 fencing token
-- Returns {'granted', fencing token} or {'higher', counter} or {'gone'}
if holder() ~= ARGV[2] then return {'gone'} end
local counter = tonumber(redis.call('GET', F)) or 0
if counter > tonumber(ARGV[3]) then return {'higher', string.format('%.0f', counter)} end
local fence = set_fence(tonumber(ARGV[3]))
if redis.call('EXISTS', L) == 1 then redis.call('HSET', L, 'fence', fence) end -- one made anew would never expire
return {'granted', fence}

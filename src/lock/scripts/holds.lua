-- Tells the newest hold of a lease: the one that its plain token releases.
-- ARG: token
-- Answers: newest (hold, entered: the larger, the later), gone (node), other (holders)
if not mine(ARG.token) then return not_mine() end
local newest = redis.call('ZREVRANGE', H, 0, 0, 'WITHSCORES')
return seen('newest', {hold = newest[1] or 'base', entered = newest[2] or '0'})

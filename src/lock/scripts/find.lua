-- Finds members by the beginning of their token.
-- ARG: prefix (the beginning)
-- Answers: found (tokens)
-- Reads M. Cost: 2 calls for a lock without members.
-- include state
local tokens = {}
for _, token in ipairs(claim and redis.call('ZRANGE', M, 0, -1) or {}) do
  if string.sub(token, 1, #ARG.prefix) == ARG.prefix then tokens[#tokens + 1] = token end
end
return answer('found', {tokens = tokens})

-- Finds members by the beginning of their token, in a part of them.
-- ARG: prefix, from (where the part begins; nil: at the first)
-- Answers: found (tokens; from: where the next part begins, nil behind the last)
-- Reads M: a PART of it, and each that begins so. Cost: of a lock without members, 1 call.
local part, from, tokens = {}, nil, {}
if shape then part, from = part_of_members(ARG.from) end
for _, token in ipairs(part) do
  if string.sub(token, 1, #ARG.prefix) == ARG.prefix and is_held_by(token) then tokens[#tokens + 1] = token end
end
return answer('found', {tokens = tokens, from = from})

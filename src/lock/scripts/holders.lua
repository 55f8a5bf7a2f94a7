-- Stands behind node.lua and record.lua: who has the lock.

-- One holder of the lock, with the first ARG.bytes of its token (nil: all). Of another library's lease no more is
-- known.
local function holder(token)
  local record, fields = redis.call('HGETALL', record_of(token)), {}
  for i = 1, #record, 2 do fields[record[i]] = record[i + 1] end
  if fields.token == token then fields.now = server_us() else fields = {} end
  fields.revoked = fields.token and revoked_by(fields.revoked, fields.since)
  fields.value, fields.left = string.sub(token, 1, tonumber(ARG.bytes) or -1), until_end(token)
  if shape then fields.claim, fields.slot = shape, redis.call('ZSCORE', P, token) end
  return flat(fields)
end

-- Those who have the lock, as the fields of an answer. At most so many members (nil: all), the one that lasts longest
-- among them.
local function holders(most)
  if value == false then return {holders = {}} end
  if value == nil then return {holders = {{'type', redis.call('TYPE', K).ok, 'left', redis.call('PTTL', K)}}} end
  if not shape then return {holders = {holder(value)}} end
  local listed, known, last = {}, {}, most and most - 1 or -1
  local tokens = redis.call('ZREVRANGE', M, 0, shape == 'shared' and last or 0)
  if shape ~= 'shared' then -- by their places all nodes name the same
    for _, token in ipairs(redis.call('ZRANGE', P, 0, last)) do tokens[#tokens + 1] = token end
  end
  for _, token in ipairs(tokens) do
    if #listed ~= most and not known[token] then listed[#listed + 1] = holder(token) end
    known[token] = true
  end
  local soonest = redis.call('ZRANGE', M, 0, 0, 'WITHSCORES')[2]
  local count, longest = redis.call('ZCARD', M), redis.call('HGET', L, 'longest')
  return {holders = listed, members = count, longest = longest, next = soonest - server_ms()}
end

-- True if ARG.claim could be had at ARG.place, as far as the members go.
local function is_vacant()
  if not shape then return value == false end
  if ARG.claim and shape ~= ARG.claim then return false end
  return not ARG.place or #redis.call('ZRANGE', P, ARG.place, ARG.place, 'BYSCORE') == 0
end

-- The answer about a lease that is not here: there is room for it, or others have the lock.
local function answer_without_lease()
  if is_vacant() then
    return answer_from_reads('gone', {node = flat(node()), longest = shape and redis.call('HGET', L, 'longest')})
  end
  return answer_from_reads('other', holders(10))
end

-- Stands behind grant.lua or record.lua in what begins or ends runs: a run, as it stands in a lock's memory, and its beginning. What
-- writes there must never fail a grant or a release, so it is called last, by pcall. What cannot be written is forgotten.
-- Keys, which are named here, as a longer request would not be read to its end; all last for FENCE_MS after the last write:
--   open (hash: token -> run that has not ended), ends (sorted set: token -> deadline of its lease in ms, for each in open),
--   log (list: the last runs that have ended, the last to end in front),
--   runs (hash: success, failure: of the runs that were told as one, the one that ended last; once: of the successes with
--     --once-per, the one that began last; succeeded, failed: how many were told; kept: there once the log was cut;
--     forced: an object whose y and b say who freed the lock for all its holders, and when)
-- A run is a JSON object of texts: t token, h host, p pid, u user, l label, b began (ms), w waited (ms), f fence, i place,
-- q if it had --once-per, n how many runs to keep (only in open, and not if 20); with its end: d duration (ms), and as outcome x
-- (exit status) or s (signal) or o (another one); none of them: its lease ran out. y is the signature of a revocation.
-- Writers are this, journal.lua, close.lua and correct.lua. What is told to users is read by runs.lua alone; contend.lua reads `once`.
local LOG, RUNS = BASE .. 'log', BASE .. 'runs'

-- So many characters of a text, without control characters; nil if that leaves none.
local function short(text, most)
  if #text > most then
    local count = 0
    for at in string.gmatch(text, '()[^\128-\191]') do
      count = count + 1
      if count > most then text = string.sub(text, 1, at - 1) break end
    end
  end
  if string.find(text, '%c') then text = string.gsub(text, '%c', '?') end
  return text ~= '' and text or nil
end

-- The run of this grant.
local function new_run(fence, place, began)
  return {t = ARG.token, h = short(ARG.host, 60), p = ARG.pid, u = short(ARG.user, 32), l = short(ARG.label, 40), b = began,
    w = ARG.waited ~= '0' and ARG.waited or nil, f = fence, i = place and digits(place), q = ARG.once and '1',
    n = ARG.log ~= '20' and ARG.log or nil}
end

-- A lease has begun, for ARG.ttl. Without a clock there is no memory. Cost: 4 calls.
local function note_begin(fence, place)
  if server_ms() == 0 or not ARG.log then return end
  pcall(function()
    local began = ARG.held and digits(server_ms() - ARG.held) or string.sub(server_us(), 1, -4)
    redis.call('HSET', OPEN, ARG.token, cjson.encode(new_run(fence, place, began)))
    redis.call('ZADD', ENDS, digits(server_ms() + ARG.ttl), ARG.token)
    redis.call('PEXPIRE', OPEN, FENCE_MS)
    redis.call('PEXPIRE', ENDS, FENCE_MS)
  end)
end

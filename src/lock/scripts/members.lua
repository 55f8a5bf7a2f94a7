-- Stands behind the prelude in all scripts: what is done to the members of a lock that bears a mark, or is to bear one.
-- Of an exclusive lock nothing of this is created, and it needs no command of this.
local UNPACKED = 1000 -- so many arguments go to one command: Lua's stack ends at some 8,000
local members = {}

if shape or ARG.claim and ARG.claim ~= 'exclusive' then
  -- Deletes the mark and all beside it; long lists in the background, where the user may.
  function members.delete_mark()
    local done = redis.call('ZCARD', M) > 1000 and redis.pcall('UNLINK', K, L, M, P)
    if type(done) ~= 'number' then redis.call('DEL', K, L, M, P) end
    value, shape = false, nil
  end

  -- The latest deadline of the members. Without a member the mark goes with all beside it, and is none for the rest of
  -- the script.
  function members.last_deadline()
    local last = redis.call('ZRANGE', M, -1, -1, 'WITHSCORES')[2]
    if not last then members.delete_mark() end
    return last
  end

  -- The members have changed: the keys last as long as the last of them, and may be gone at once, as the clock goes on.
  function members.expire_all()
    local last = members.last_deadline()
    if not last then return end
    for _, key in ipairs({K, L, M, P}) do redis.call('PEXPIREAT', key, last) end
    if redis.call('EXISTS', K) == 0 then value, shape = false, nil end
  end

  -- One lasts ttl ms from now. Its record stays a little longer.
  function members.expire(token, ttl)
    local ends = server_ms() + ttl
    redis.call('ZADD', M, digits(ends), token)
    redis.call('PEXPIREAT', BASE .. 'member:' .. token, digits(ends + 1000))
    members.expire_all()
  end

  -- Notes the ttl of one: as long may a node that restarts have forgotten it.
  function members.set_longest(ttl)
    redis.call('HSET', L, 'longest', digits(math.max(ttl, tonumber(redis.call('HGET', L, 'longest')) or 0)))
  end

  -- Takes these out of the lists.
  function members.forget(tokens)
    for first = 1, #tokens, UNPACKED do
      local last, records = math.min(first + UNPACKED - 1, #tokens), {}
      for i = first, last do records[#records + 1] = BASE .. 'member:' .. tokens[i] end
      redis.call('ZREM', M, unpack(tokens, first, last))
      redis.call('ZREM', P, unpack(tokens, first, last))
      redis.call('DEL', unpack(records))
    end
  end
end

-- Forgets the members that have run out, at the head of every script: by this clock, no member that is listed behind it
-- has. Calls no waiter, since one with an old ticket would be passed over.
if shape then
  members.forget(redis.call('ZRANGE', M, '-inf', digits(server_ms()), 'BYSCORE'))
  members.last_deadline()
end

-- Follows members.lua in each script that takes leases away.

-- Takes the lease of this token away, which is there.
local function drop(token)
  if shape then
    members.forget({token})
    return members.expire_all()
  end
  redis.call('DEL', K, L, H)
  value = false
end

-- Undoes a take; true if it had been granted. A user who may not delete lets it run out: the take was refused halfway.
-- (Of members that is out of the list.)
local function undo(token)
  local granted = is_held_by(token)
  if granted and not pcall(drop, token) and not shape then redis.call('PEXPIRE', K, 1) end
  redis.pcall('HDEL', OPEN, token or '')
  redis.pcall('ZREM', ENDS, token or '')
  return granted
end

-- Undoes the tries in ARG.earlier, which this node has not confirmed to have undone; true if one had been granted.
local function undo_earlier()
  local granted = false
  for token in string.gmatch(ARG.earlier or '', '%S+') do granted = undo(token) or granted end
  return granted
end

-- What is stored under a lock: 1 the owner, alone or with more behind a space, 0 nothing, 2 another owner
-- or something that is no string.
-- Where it could not be read, the server's error, which says nothing about who holds the lock.
local function find(lock, owner)
  local holder = redis.pcall('GET', lock)
  if holder == owner then
    return 1
  end
  if not holder then
    return 0
  end
  if type(holder) == 'table' then
    return string.find(holder.err, 'WRONGTYPE', 1, true) and 2 or holder
  end
  return string.find(holder, owner .. ' ', 1, true) == 1 and 1 or 2
end

-- What is stored under a lock: 1 the owner, 0 nothing, 2 another owner or something that is no string.
-- Where it could not be read, the server's error, which says nothing about who holds the lock.
local function find(lock, owner)
  local holder = redis.pcall('GET', lock)
  if holder == owner then
    return 1
  end
  if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    return holder
  end
  return holder and 2 or 0
end

-- What stands under a lock: 1 its owner, 0 nothing, 2 another or something that is not a string.
-- Where it could not be read, the server's error: that says nothing of who holds the lock.
local function find(lock, owner)
  local held = redis.pcall('GET', lock)
  if held == owner then
    return 1
  end
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  return held and 2 or 0
end

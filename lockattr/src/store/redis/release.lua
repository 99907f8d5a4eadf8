-- Removes a lock that its owner still holds.
-- KEYS: lock.  ARGV: owner.
-- Answers 1 removed, 0 nothing there, 2 another's.
local held = redis.pcall('GET', KEYS[1])
if held == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
return held and 2 or 0

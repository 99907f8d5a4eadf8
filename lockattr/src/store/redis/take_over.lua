-- Has another owner hold what an owner holds, of all keys or of none.
-- KEYS: what the owner holds.
-- ARGV: the owner; the other one; the ttl in ms; since when it is held, in ms since 1970, where a value does not
-- say it.
-- A key that is the other owner's already was taken over before. No key is left with less than it had.
-- Answers 1 where all are the other owner's now, and else of the first that is not 0 nothing there, 2 another's.
for _, lock in ipairs(KEYS) do
  local found = find(lock, ARGV[1])
  if found == 0 or found == 2 then
    local done = find(lock, ARGV[2])
    found = done == 1 and 1 or found
  end
  if found ~= 1 then
    return found
  end
end
for _, lock in ipairs(KEYS) do
  local value = redis.call('GET', lock)
  local left = math.max(redis.call('PTTL', lock), tonumber(ARGV[3]))
  local since = string.match(value, '^%S+( .+)$') or ' ' .. ARGV[4]
  redis.call('SET', lock, ARGV[2] .. since, 'PX', left)
end
return 1

-- Has another owner hold what an owner holds, of all locks or of none.
-- KEYS: the locks.
-- ARGV: the owner; the other one; the ttl in ms; since when it is held, in ms since 1970, where a value does not
-- say it; and 'shares' where others may hold the lock beside it, or nothing.
-- A lock that is the other owner's already was taken over before. None is left with less than it had.
-- Answers 1 where all are the other owner's now, and else of the first that is not 0 nothing there, 2 another's.
local owner, heir, ttl, shares = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5] == 'shares'
local expiries = {}
for i, lock in ipairs(KEYS) do
  local found, expiry = find(lock, owner, shares)
  if found == 0 or found == 2 then
    local done, taken_over = find(lock, heir, shares)
    if done == 1 then
      found, expiry = 1, taken_over
    end
  end
  if found ~= 1 then
    return found
  end
  expiries[i] = expiry
end

-- Among those who hold a lock together the other owner has the slot and the weight of the one before.
local function replace(lock, expiry)
  if redis.call('ZSCORE', lock, owner) then
    local said = said_of(lock, owner)
    local expires = score(math.max(expiry, millis() + ttl))
    redis.call('ZADD', lock, expires, heir, place_of(heir), heir .. string.sub(said, #owner + 1))
    redis.call('ZREM', lock, owner, said)
    settle(lock)
  else
    prolong(lock, heir, expiry, ttl)
  end
end

for i, lock in ipairs(KEYS) do
  if expiries[i] then
    replace(lock, expiries[i])
  else
    local value = redis.call('GET', lock)
    local left = math.max(redis.call('PTTL', lock), ttl)
    local since = string.match(value, '^%S+( .+)$') or ' ' .. ARGV[4]
    redis.call('SET', lock, heir .. since, 'PX', left)
  end
end
return 1

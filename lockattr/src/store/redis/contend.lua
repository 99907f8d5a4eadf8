-- Asks for a lock that was refused, or may have been granted already.
-- KEYS: lock.  ARGV: owner, ttl in ms.
-- Answers {1} granted, {0, holder, ms left} busy, {-1, what} not a lock.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return {1}
end
if kind ~= 'string' then
  return {-1, 'a ' .. kind}
end
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1}
end
local left = redis.call('PTTL', KEYS[1])
if left == -1 then
  return {-1, 'a string without expiry'}
end
return {0, string.sub(holder, 1, 256), left}

-- Asks for locks that were refused, or may have been granted already.
-- KEYS: locks, or the slots of one.  ARGV: owner, ttl in ms, 'any' for one of them.
-- Answers {1, i} granted, {0, i, holder, ms left} busy, {2, i, ms since 1970} done,
-- {-1, i, what} not a lock; i counts the keys from 0.
local function look(key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    return 1
  end
  if kind ~= 'string' then
    return -1, 'a ' .. kind
  end
  local holder = redis.call('GET', key)
  if holder == ARGV[1] then
    return 1, 'ours'
  end
  local left = redis.call('PTTL', key)
  if left == -1 then
    return -1, 'a string without expiry'
  end
  local since = string.match(holder, '^done@(%d+)$')
  if since then
    return 2, since
  end
  return 0, string.sub(holder, 1, 256), left
end

local free, refusal
for i, key in ipairs(KEYS) do
  local state, what, left = look(key)
  if state == 1 then
    -- Of several slots, the one that is ours already comes first.
    if what == 'ours' or not free then
      free = i
    end
    if what == 'ours' and ARGV[3] == 'any' then
      break
    end
  elseif not refusal or (state == 0 and refusal[1] == 0 and left < refusal[4]) then
    refusal = {state, i - 1, what, left}
  end
end

if refusal and (ARGV[3] ~= 'any' or not free) then
  return refusal
end
if ARGV[3] == 'any' then
  redis.call('SET', KEYS[free], ARGV[1], 'PX', ARGV[2])
  return {1, free - 1}
end
for _, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
end
return {1, 0}

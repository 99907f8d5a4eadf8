-- Asks for locks that were refused, or may have been granted already, and queues for them.
-- KEYS: locks, or the slots of one; then the queue of each lock.
-- ARGV: owner, ttl in ms, 'all' or 'any' of them; of one that waits, or has waited, its entry in a
-- queue, and for how many ms yet.
-- Answers {1, i} granted, {2, i, ms since 1970} done, {-1, i, what} not a lock,
-- {0, i, holder, ms left} busy, and of one that waits its place, from 0, and the time in
-- microseconds; i counts the keys from 0.
local any = ARGV[3] == 'any'
local count = any and #KEYS - 1 or #KEYS / 2
local me, wait = ARGV[4], tonumber(ARGV[5] or 0)

local function queue(i)
  return KEYS[any and #KEYS or count + i]
end

-- Each of several locks is the only slot that it has.
local function slot(i)
  return any and i - 1 or 0
end

local function look(key)
  local holder = redis.pcall('GET', key)
  if not holder then
    return 1
  end
  if type(holder) == 'table' then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then
      -- The same error ends this.
      redis.call('GET', key)
    end
    return -1, 'a ' .. redis.call('TYPE', key).ok
  end
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

local mine, refusal = {}, nil
for i = 1, count do
  local state, what, left = look(KEYS[i])
  if state == 1 and what ~= 'ours' then
    -- A lock that has expired under its holder: those who wait come before those who come.
    local winner = pass(KEYS[i], slot(i), queue(i), not (any and mine[1]) and me or nil)
    if winner and winner ~= ARGV[1] then
      state, what, left = look(KEYS[i])
    end
  end
  if state == 1 then
    -- Of several slots, the one that is ours already comes first.
    table.insert(mine, what == 'ours' and 1 or #mine + 1, i)
  elseif not refusal or (state == 0 and refusal[1] == 0 and left < refusal[4]) then
    refusal = {state, i - 1, what, left}
  end
end

local granted = any and mine[1] or not refusal
local asks = granted or (refusal[1] == 0 and wait > 0 and refusal[2] + 1)
for i = 1, me and (any and 1 or count) or 0 do
  if granted or not asks or not any and asks ~= i then
    leave(KEYS[i], queue(i), me)
  end
end

if granted then
  for i = any and mine[1] or 1, any and mine[1] or count do
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
    tell_first(queue(i), ARGV[2])
  end
  return {1, any and mine[1] - 1 or 0}
end

-- All or none: what was given to us while we waited, or is free, goes on to the next.
for _, i in ipairs(mine) do
  if not pass(KEYS[i], slot(i), queue(i)) then
    redis.call('DEL', KEYS[i])
  end
end
if not asks then
  return refusal
end
local line = queue(asks)
local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')
redis.call('ZADD', line, 'NX', (tonumber(last[2]) or 0) + 1, me)
local length = math.min(wait + 1000, LONGEST)
if redis.call('PTTL', line) < length then
  redis.call('PEXPIRE', line, length)
end
table.insert(refusal, redis.call('ZRANK', line, me))
table.insert(refusal, clock())
return refusal

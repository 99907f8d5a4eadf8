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

-- Several locks are read together. Of what is no string this says what it says of nothing.
local held = {}
if count > 1 then
  -- As many values at most as fit on the stack of a script.
  local TOGETHER = 1000
  held = redis.call('MGET', unpack(KEYS, 1, math.min(count, TOGETHER)))
  for from = TOGETHER + 1, count, TOGETHER do
    local values = redis.call('MGET', unpack(KEYS, from, math.min(from + TOGETHER - 1, count)))
    for _, value in ipairs(values) do
      table.insert(held, value)
    end
  end
end

-- What keeps a lock from us, if anything does, `holder` being what was read of it.
local function look(key, holder)
  holder = holder or redis.pcall('GET', key)
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

-- Of many slots only who waits first has to know which is held for the shortest time: the others
-- are told when they are first, and any holder is an answer to those who do not wait.
local MANY = 16
local soonest = not any or count <= MANY
if not soonest and wait > 0 then
  local front = redis.pcall('ZRANGE', queue(1), 0, 0)[1]
  soonest = not front or front == me
end

-- What we may take; what of it was given to us while we waited; whose queue has nobody in it; and
-- why not.
local mine, given, empty, refusal = {}, {}, {}, nil

local function consider(i)
  local state, what, left = look(KEYS[i], held[i])
  if state == 1 and what ~= 'ours' then
    -- A lock that has expired under its holder: those who wait come before those who come.
    local waits = not (any and mine[1]) and me or nil
    local winner
    winner, empty[any and 1 or i] = pass(KEYS[i], slot(i), queue(i), waits)
    if winner == ARGV[1] then
      what = 'ours'
    elseif winner then
      state, what, left = look(KEYS[i])
    end
  end
  if state == 1 then
    if what == 'ours' then
      table.insert(given, i)
    end
    -- Of several slots, the one that is ours already comes first.
    table.insert(mine, any and what == 'ours' and 1 or #mine + 1, i)
  elseif not refusal or state == 0 and refusal[1] == 0 and left < refusal[4] then
    refusal = {state, i - 1, what, left}
  end
end

for i = 1, count do
  local holder = held[i]
  -- Of several slots, one more that is another's makes no difference, nor one more that is free once
  -- there is nobody to whom it could go.
  if not any or soonest or not refusal or holder == ARGV[1] or not holder then
    if holder or not any or not mine[1] or not empty[1] then
      consider(i)
    end
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
  local ours = {}
  for _, i in ipairs(given) do
    ours[i] = true
  end
  for i = any and mine[1] or 1, any and mine[1] or count do
    -- This may be carried out late, and more be left of what is ours already.
    if not ours[i] or redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
      redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
    end
    if not empty[any and 1 or i] then
      tell_first(queue(i), ARGV[2])
    end
  end
  return {1, any and mine[1] - 1 or 0}
end

-- All or none: what was given to us goes on to the next.
for _, i in ipairs(given) do
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

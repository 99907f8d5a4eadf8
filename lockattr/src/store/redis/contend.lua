-- Acquires locks that were refused, or may have been granted already, and joins their queues.
-- KEYS: locks, or the slots of one; then the queue of each lock, but for a single lock whose queue may be
-- on another node: then nobody is passed it, and nobody joins.
-- ARGV: owner, ttl in ms, 'all' or 'any' of the keys; of a claim that waits, or has waited, its entry in
-- a queue, and for how many ms more it waits.
-- Answers {1, i} granted, {2, i, value} done, with all that is stored, {-1, i, what} not a lock, {0, i, value, ms remaining} busy,
-- and of a claim that waits its place, from 0, and the time in microseconds; i counts the keys from 0.
local any = ARGV[3] == 'any'
local count = any and #KEYS - 1 or math.ceil(#KEYS / 2)
local own_entry, wait = ARGV[4], tonumber(ARGV[5] or 0)

local function queue_of(i)
  return KEYS[any and #KEYS or count + i]
end

-- Each of several locks is the only slot that it has.
local function slot_of(i)
  return any and i - 1 or 0
end

-- Several locks are read together. What is no string reads as nothing here.
local holders = {}
if count > 1 then
  -- The most values that fit on the stack of a script.
  local MOST_VALUES = 1000
  holders = redis.call('MGET', unpack(KEYS, 1, math.min(count, MOST_VALUES)))
  for from = MOST_VALUES + 1, count, MOST_VALUES do
    local to = math.min(from + MOST_VALUES - 1, count)
    for _, value in ipairs(redis.call('MGET', unpack(KEYS, from, to))) do
      table.insert(holders, value)
    end
  end
end

-- Whether a key may be taken, given what was read of it: 1, and 'ours' where this owner holds it; or
-- the state of an answer, with what belongs to it.
local function inspect(key, holder)
  holder = holder or redis.pcall('GET', key)
  if not holder then
    return 1
  end
  if type(holder) == 'table' then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then
      -- Fails again, and ends the script with that error.
      redis.call('GET', key)
    end
    return -1, 'a ' .. redis.call('TYPE', key).ok
  end
  -- The owner, alone or with more behind a space.
  if holder == ARGV[1] or string.find(holder, ARGV[1], 1, true) == 1
    and string.sub(holder, #ARGV[1] + 1, #ARGV[1] + 1) == ' ' then
    return 1, 'ours'
  end
  local remaining = redis.call('PTTL', key)
  if remaining == -1 then
    return -1, 'a string without expiry'
  end
  if string.find(holder, '^done@%d+$') or string.find(holder, '^done@%d+ ') then
    return 2, holder
  end
  return 0, string.sub(holder, 1, 256), remaining
end

-- Of many slots only the first waiter has to know which is held for the shortest time: the others are
-- woken when they are first, and any holder is an answer to a claim that does not wait.
local MANY = 16
local soonest = not any or count <= MANY
if not soonest and wait > 0 then
  local first = redis.pcall('ZRANGE', queue_of(1), 0, 0)[1]
  soonest = not first or first == own_entry
end

-- The keys that may be taken; those of them that were granted while the claim waited; the locks whose
-- queue is known to be empty; and why the claim is refused, if it is.
local takeable, granted_before, empty, refusal = {}, {}, {}, nil

local function consider(i)
  local state, what, remaining = inspect(KEYS[i], holders[i])
  if state == 1 and what ~= 'ours' then
    -- The lock has expired under its holder. Those who wait come before those who arrive.
    local asking = not (any and takeable[1]) and own_entry or nil
    local winner
    winner, empty[any and 1 or i] = grant_next(KEYS[i], slot_of(i), queue_of(i), asking)
    if winner == ARGV[1] then
      what = 'ours'
    elseif winner then
      state, what, remaining = inspect(KEYS[i])
    end
  end
  if state == 1 then
    if what == 'ours' then
      table.insert(granted_before, i)
    end
    -- Of several slots, the one that is ours already comes first.
    table.insert(takeable, any and what == 'ours' and 1 or #takeable + 1, i)
  elseif not refusal or state == 0 and refusal[1] == 0 and remaining < refusal[4] then
    refusal = {state, i - 1, what, remaining}
  end
end

-- Looked up once: there may be a thousand slots.
local find, owner = string.find, ARGV[1]
for i = 1, count do
  local holder = holders[i]
  -- Of several slots, one more of another owner's makes no difference, nor one more that is free where
  -- nobody waits who could be granted it.
  if not any or soonest or not refusal or not holder or find(holder, owner, 1, true) == 1 then
    if holder or not any or not takeable[1] or not empty[1] then
      consider(i)
    end
  end
end

local granted = any and takeable[1] or not refusal
local joins = granted or (refusal[1] == 0 and wait > 0 and refusal[2] + 1)
for i = 1, own_entry and (any and 1 or count) or 0 do
  if granted or not joins or not any and joins ~= i then
    leave(KEYS[i], queue_of(i), own_entry)
  end
end

if granted then
  local ours = {}
  for _, i in ipairs(granted_before) do
    ours[i] = true
  end
  for i = any and takeable[1] or 1, any and takeable[1] or count do
    -- What is ours already is so since it was granted. This may be carried out late, and more be left of it.
    if not ours[i] or redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2])
      and redis.call('PEXPIRE', KEYS[i], ARGV[2]) == 0 then
      redis.call('SET', KEYS[i], held_by(ARGV[1], any and count or '1'), 'PX', ARGV[2])
    end
    if not empty[any and 1 or i] then
      wake_first(queue_of(i), ARGV[2])
    end
  end
  return {1, any and takeable[1] - 1 or 0}
end

-- All or none: what was granted before goes on to the next waiter.
for _, i in ipairs(granted_before) do
  if not grant_next(KEYS[i], slot_of(i), queue_of(i)) then
    redis.call('DEL', KEYS[i])
  end
end
if not joins then
  return refusal
end
local queue = queue_of(joins)
local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
redis.call('ZADD', queue, 'NX', (tonumber(last[2]) or 0) + 1, own_entry)
local expiry = math.min(wait + 1000, LONGEST)
if redis.call('PTTL', queue) < expiry then
  redis.call('PEXPIRE', queue, expiry)
end
table.insert(refusal, redis.call('ZRANK', queue, own_entry))
table.insert(refusal, clock())
return refusal

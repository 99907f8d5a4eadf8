-- Acquires locks, each of which one may hold alone, that were refused, or may have been granted already,
-- and joins their queues.
-- KEYS: locks; then the queue of each lock, but for a single lock whose queue may be on another node: then
-- nobody is passed it, and nobody joins.
-- ARGV: owner, ttl in ms; of a claim that waits, or has waited, its entry in a queue, and for how many ms
-- more it waits.
-- Answers {1, 0} granted, {2, i, value} done, with all that is stored, {-1, i, what} not a lock, {0, i, value, ms remaining} busy,
-- and of a claim that waits its place, from 0, and the time in microseconds; i counts the locks from 0.
local count = math.ceil(#KEYS / 2)
local own_entry, wait = ARGV[3], tonumber(ARGV[4] or 0)

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

-- Whether a lock may be taken, given what was read of it: 1, and 'ours' where this owner holds it; or
-- the state of an answer, with what belongs to it.
local function inspect(lock, holder)
  holder = holder or redis.pcall('GET', lock)
  if not holder then
    return 1
  end
  -- The owner, alone or with more behind a space.
  if holder == ARGV[1] or type(holder) == 'string' and string.find(holder, ARGV[1] .. ' ', 1, true) == 1 then
    return 1, 'ours'
  end
  return refusal_of(lock, holder)
end

-- The locks of the claim that were granted while it waited; those whose queue is known to be empty; and why
-- the claim is refused, if it is.
local granted_before, empty, refusal = {}, {}, nil

for i = 1, count do
  local state, what, remaining = inspect(KEYS[i], holders[i])
  if state == 1 and what ~= 'ours' then
    -- The lock has expired under its holder. Those who wait come before those who arrive.
    local winner
    winner, empty[i] = grant_next(KEYS[i], KEYS[count + i], own_entry)
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
  elseif not refusal or state == 0 and refusal[1] == 0 and remaining < refusal[4] then
    refusal = {state, i - 1, what, remaining}
  end
end

local joins = refusal and refusal[1] == 0 and wait > 0 and refusal[2] + 1
for i = 1, own_entry and count or 0 do
  if joins ~= i then
    leave(KEYS[i], KEYS[count + i], own_entry)
  end
end

if not refusal then
  local ours = {}
  for _, i in ipairs(granted_before) do
    ours[i] = true
  end
  for i = 1, count do
    -- What is ours already is so since it was granted. This may be carried out late, and more be left of it.
    if not ours[i] or redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2])
      and redis.call('PEXPIRE', KEYS[i], ARGV[2]) == 0 then
      redis.call('SET', KEYS[i], held_by(ARGV[1]), 'PX', ARGV[2])
    end
    if not empty[i] then
      wake_first(KEYS[count + i], ARGV[2])
    end
  end
  return {1, 0}
end

-- All or none: what was granted before goes on to the next waiter.
for _, i in ipairs(granted_before) do
  if not grant_next(KEYS[i], KEYS[count + i]) then
    redis.call('DEL', KEYS[i])
  end
end
if not joins then
  return refusal
end
return join(refusal, KEYS[joins], KEYS[count + joins], own_entry, wait)

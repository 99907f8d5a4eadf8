-- Ends an owner's hold of the locks that it still holds, and passes them on to those who wait.
-- KEYS: locks, or slots of one; then the queue of each lock.
-- ARGV: owner; how many locks, 1 if that is not told, and the index of the first among those that
-- were asked for, 0; the entry of one that waits no more, or nothing; 'keep' where a mark is to be
-- written also under a lock that is gone; and what is to be left under each lock: 'closed' or 'done'
-- with its ms, or nothing and 0.
-- Answers 1 where it held all of them, 0 where one was gone, 2 where one was another's, or the first
-- error, which keeps no other lock from being given back; of one that waits no more, and of several
-- slots, of which an owner has one, 1 where it held any or stood in a queue.
if ours then
  if not pass(KEYS[1], 0, KEYS[2]) then
    redis.call('DEL', KEYS[1])
  end
  return 1
end
local count, index = tonumber(ARGV[2] or 1), tonumber(ARGV[3] or 0)
local entry = ARGV[4] ~= '' and ARGV[4]
-- Slots share a queue; each of several locks has its own, and is the only slot that it has.
local slots = not KEYS[count + 2]
local stood = false

-- Marks the work of a lock as done, and has nobody wait for it any longer.
local function mark_done(lock, queue, length)
  local time = redis.call('TIME')
  local since = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.call('SET', lock, 'done@' .. since, 'PX', length)
  local entry = first(queue)
  while entry do
    local owner, channel = string.match(entry, '^(%S+) %d+ %d+ (.+)$')
    if owner then
      tell(channel, owner, 'look', '')
    end
    entry = first(queue)
  end
end

-- Ends the hold of one lock. Answers what was found there.
local function give_back(i)
  local lock, queue = KEYS[i], KEYS[count + i] or KEYS[count + 1]
  local what, length = ARGV[4 + 2 * i], ARGV[5 + 2 * i]
  if entry and (i == 1 or not slots) and leave(lock, queue, entry) then
    stood = true
  end
  local found = find(lock, ARGV[1])
  if what == 'done' and ARGV[5] == 'keep' then
    if found == 0 then
      mark_done(lock, queue, length)
    elseif found == 2 and string.find(redis.call('GET', lock), '^done@') then
      -- An earlier release has done it.
      return 1
    end
  end
  if found ~= 1 then
    return found
  end
  if what == 'closed' then
    -- The same place, but an id that no lease has: nothing can renew or release it.
    local closed = string.rep('0', 32) .. string.sub(ARGV[1], 33)
    redis.call('SET', lock, closed, 'PX', length)
  elseif what == 'done' then
    mark_done(lock, queue, length)
  else
    stood = true
    if not pass(lock, slots and index + i - 1 or 0, queue) then
      redis.call('DEL', lock)
    end
  end
  return 1
end

local answer, failed = 1, nil
for i = 1, count do
  local _, found = pcall(give_back, i)
  if type(found) ~= 'number' then
    failed = failed or (type(found) == 'table' and found or {err = tostring(found)})
  elseif found ~= 1 then
    answer = found
  end
end
if failed then
  return failed
end
if stood and (entry or slots and count > 1) then
  return 1
end
return answer

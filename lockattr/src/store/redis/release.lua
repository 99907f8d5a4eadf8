-- Ends an owner's hold of the keys that it still holds, and grants them to those who wait.
-- KEYS: locks, or slots of one; then the queue of each lock, but for a single key whose queue may be on
-- another node.
-- ARGV: owner; how many keys, 1 where that is left out, and the index of the first of them among those
-- that were asked for, 0; the entry of a claim that waits no more, or nothing; 'keep' where a mark is to
-- be written also under a lock that is gone; and what is to be left under each key: 'closed' or 'done'
-- with its ms, and behind a space the reply that is left with it; or nothing and 0.
-- Answers 1 where it held all of them, 0 where one was gone, 2 where one was another's, or the first
-- error, which keeps no other key from being given back; of a claim that waits no more, and of several
-- slots, of which an owner has one, 1 where it held any or was in a queue.
if ours then
  if not grant_next(KEYS[1], 0, KEYS[2]) then
    redis.call('DEL', KEYS[1])
  end
  return 1
end
local count, first_index = tonumber(ARGV[2] or 1), tonumber(ARGV[3] or 0)
local entry = ARGV[4] ~= '' and ARGV[4]
-- Slots share a queue. Each of several locks has its own, and is the only slot that it has.
local slots = not KEYS[count + 2]
local held_any = false

-- Marks the work of a lock as done, and tells everybody who waits for it to look.
local function mark_done(lock, queue, what)
  local length, reply = string.match(what, '^(%d+)(.*)$')
  redis.call('SET', lock, 'done@' .. string.sub(clock(), 1, -4) .. reply, 'PX', length)
  local waiter = pop_first(queue)
  while waiter do
    local owner, channel = string.match(waiter, '^(%S+) %d+ %d+ (.+)$')
    if owner then
      wake(channel, owner, 'look', '')
    end
    waiter = pop_first(queue)
  end
end

-- Ends the hold of one key. Answers what was found there.
local function give_back(i)
  local lock, queue = KEYS[i], KEYS[count + i] or KEYS[count + 1]
  local what, length = ARGV[4 + 2 * i], ARGV[5 + 2 * i]
  if entry and (i == 1 or not slots) and leave(lock, queue, entry) then
    held_any = true
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
  held_any = true
  if what == 'closed' then
    -- The same host and process, but an id that no lease has: nothing can renew or release it.
    local closed = string.rep('0', 32) .. string.sub(ARGV[1], 33)
    local permits = string.match(redis.call('GET', lock), '^%S+ %d+ (%d+)$') or '1'
    redis.call('SET', lock, held_by(closed, permits), 'PX', length)
  elseif what == 'done' then
    mark_done(lock, queue, length)
  elseif not grant_next(lock, slots and first_index + i - 1 or 0, queue) then
    redis.call('DEL', lock)
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
if held_any and (entry or slots and count > 1) then
  return 1
end
return answer

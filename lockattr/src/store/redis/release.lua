-- Ends an owner's hold of the keys that it still holds, and grants them to those who wait.
-- KEYS: locks; then the queue of each lock, but for a single one whose queue may be on another node.
-- ARGV: owner; how many locks, 1 where that is left out; 'shares' where others may hold the lock beside it, or
-- nothing; the entry of a claim that waits no more, or nothing; 'keep' where a mark is to be written also under a
-- lock that is gone; and what is to be left under each lock: 'closed' or 'done' with its ms, and behind a space the
-- reply that is left with it; or nothing and 0.
-- Answers 1 where it held all of them, 0 where one was gone, 2 where one was another's, or the first
-- error, which keeps no other lock from being given back; of a claim that waits no more, 1 where it held any or was
-- in a queue.
if not ARGV[2] then
  local found, several = find(KEYS[1], ARGV[1])
  if found ~= 1 then
    return found
  elseif not several then
    if not grant_next(KEYS[1], KEYS[2]) then
      redis.call('DEL', KEYS[1])
    end
    return 1
  end
end
local count, shares = tonumber(ARGV[2] or 1), ARGV[3] == 'shares'
local entry = ARGV[4] and ARGV[4] ~= '' and ARGV[4]
local held_any = false

-- Marks the work of a lock as done, and tells everybody who waits for it to look.
local function mark_done(lock, queue, what)
  local length, reply = string.match(what, '^(%d+)(.*)$')
  redis.call('SET', lock, 'done@' .. string.sub(clock(), 1, -4) .. reply, 'PX', length)
  local waiter = pop_first(queue)
  while waiter do
    local owner, channel = string.match(waiter, '^(%S+) %d+ %S+ (.+)$')
    if owner then
      wake(channel, owner, 'look', '')
    end
    waiter = pop_first(queue)
  end
end

-- Ends the hold of one of several that hold a lock together. What is left closed stays with its slot in
-- nobody's hands, under the same host and process: nothing can renew or release it.
local function end_beside(lock, queue, owner, what, length)
  if what == 'closed' then
    local said = said_of(lock, owner)
    local slot, rest = string.match(said, '^%S+ %d+ (%d+)( .+)$')
    local nobody = string.format('%032d', slot or 0) .. string.sub(owner, 33)
    local before = redis.call('ZSCORE', lock, nobody)
    redis.call('ZREM', lock, owner, said)
    redis.call('ZADD', lock, score(math.max(tonumber(before) or 0, millis() + length)), nobody)
    if not before then
      said = nobody .. ' ' .. millis() .. (slot and ' ' .. slot .. rest or '')
      redis.call('ZADD', lock, place_of(nobody), said)
    end
  else
    drop(lock, owner)
  end
  settle(lock)
  serve(lock, queue)
end

-- Ends the hold of one lock. Answers what was found there.
local function give_back(i)
  local lock, queue = KEYS[i], KEYS[count + i]
  local what, length = ARGV[4 + 2 * i], ARGV[5 + 2 * i]
  if entry and leave(lock, queue, entry) then
    held_any = true
  end
  local found, expiry, owner = find(lock, ARGV[1], shares)
  if what == 'done' and ARGV[5] == 'keep' then
    if found == 0 then
      mark_done(lock, queue, length)
    elseif found == 2 then
      local there = redis.pcall('GET', lock)
      if type(there) == 'string' and string.find(there, '^done@') then
        -- An earlier release has done it.
        return 1
      end
    end
  end
  if found ~= 1 then
    return found
  end
  held_any = true
  if expiry then
    end_beside(lock, queue, owner, what, length)
  elseif what == 'closed' then
    -- The same host and process, but an id that no lease has: nothing can renew or release it.
    local closed = string.rep('0', 32) .. string.sub(ARGV[1], 33)
    redis.call('SET', lock, held_by(closed), 'PX', length)
  elseif what == 'done' then
    mark_done(lock, queue, length)
  elseif not grant_next(lock, queue) then
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
if held_any and entry then
  return 1
end
return answer

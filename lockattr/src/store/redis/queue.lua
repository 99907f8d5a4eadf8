-- Who waits for a lock: a sorted set in order of arrival, of entries `owner ttl-in-ms permits channel`.
-- `permits` is how many slots the lock has for the claim.

-- The longest expiry of a queue, in ms. Each look of a waiter starts it anew, and every waiter looks
-- again sooner than that.
local LONGEST = 301000

-- The server's clock, in microseconds: one moment in all of a run.
local now
local function clock()
  if not now then
    local time = redis.call('TIME')
    now = time[1] .. string.sub('00000' .. time[2], -6)
  end
  return now
end

-- What is stored under a lock that is held, or closed, from now on; under a slot also how many there are.
local function held_by(owner, permits)
  local value = owner .. ' ' .. string.sub(clock(), 1, -4)
  return permits ~= '1' and value .. ' ' .. permits or value
end

-- What is published to a waiter: its id, which does not tell its owner; a proof that we know the owner;
-- and the kind, the time and the rest.
local function message(owner, kind, rest)
  local text = kind .. ' ' .. clock() .. rest
  local proof = redis.sha1hex(owner .. ' ' .. redis.sha1hex(owner .. ' ' .. text))
  return redis.sha1hex('waiter ' .. owner) .. ' ' .. proof .. ' ' .. text
end

-- Publishes to a waiter. Answers whether its client is subscribed: PUBLISH counts everybody who
-- subscribes to a pattern of the channel, which NUMSUB leaves out.
local function wake(channel, owner, kind, rest)
  local clients = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if clients[2] == 0 then
    -- In a cluster it may be subscribed on another node, where it waited before the lock moved here.
    redis.pcall('PUBLISH', channel, message(owner, 'look', ''))
    return false
  end
  local received = redis.pcall('PUBLISH', channel, message(owner, kind, rest))
  return type(received) == 'number' and received > 0
end

-- Pops the first entry of a queue; nothing where the queue is empty, cannot be read, or is not given.
local function pop_first(queue)
  if not queue then
    return nil
  end
  local popped = redis.pcall('ZPOPMIN', queue)
  return popped[1], popped[2]
end

-- In a longer queue some waiter always looks soon, and finds what the first one may have missed.
local FEW = 10

-- Wakes the first waiter of a queue, which looks by itself from then on in case a wake-up is lost, and
-- tells it for how many ms more the lock is held.
local function wake_first(queue, remaining)
  if redis.pcall('ZRANGE', queue, FEW, FEW)[1] then
    return
  end
  local entry = redis.pcall('ZRANGE', queue, 0, 0)[1]
  local owner, channel = string.match(entry or '', '^(%S+) %d+ %d+ (.+)$')
  if owner then
    redis.pcall('PUBLISH', channel, message(owner, 'first', ' ' .. remaining))
  end
end

-- Grants a lock that nobody holds to the first waiter whose client is subscribed. That may be
-- `asking`, the entry of the claim that runs this script, which is not sent a message and finds the lock
-- free. Answers the new owner, or nothing where nobody is left; and whether the queue is known to be empty.
local function grant_next(lock, index, queue, asking)
  local put_back, written, winner = {}, false, nil
  local entry, place = pop_first(queue)
  while entry do
    local owner, ttl, permits, channel = string.match(entry, '^(%S+) (%d+) (%d+) (.+)$')
    if entry == asking then
      winner = owner
    elseif owner and index >= tonumber(permits) then
      -- It counts fewer slots, and waits for one of those.
      table.insert(put_back, {place, entry})
    elseif owner then
      -- Written before it is published: where the write fails, nobody may believe to hold the lock.
      if redis.pcall('SET', lock, held_by(owner, permits), 'PX', ttl).err then
        table.insert(put_back, {place, entry})
        break
      end
      written = true
      local rest = ' ' .. index .. ' ' .. #lock .. ' ' .. lock .. queue
      if wake(channel, owner, 'grant', rest) then
        winner = owner
        wake_first(queue, ttl)
      end
    end
    if winner then
      break
    end
    entry, place = pop_first(queue)
  end
  -- It names a waiter who could not be woken. Who asks writes it itself.
  if written and (not winner or entry == asking) then
    redis.call('DEL', lock)
  end
  for _, one in ipairs(put_back) do
    redis.call('ZADD', queue, one[1], one[2])
  end
  -- A queue that was emptied in between has lost its expiry.
  if put_back[1] and redis.call('PTTL', queue) < 0 then
    redis.call('PEXPIRE', queue, LONGEST)
  end
  return winner, not entry and not put_back[1]
end

-- Removes the entry of a claim that waits no more. Answers whether it was there.
local function leave(lock, queue, entry)
  -- An error where something that is not a queue is stored under its key.
  local place = redis.pcall('ZRANK', queue, entry)
  if type(place) ~= 'number' then
    return false
  end
  redis.call('ZREM', queue, entry)
  if place == 0 then
    wake_first(queue, redis.call('PTTL', lock))
  end
  return true
end

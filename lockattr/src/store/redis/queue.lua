-- Who waits for a lock: a sorted set in order of arrival, of entries `owner ttl-in-ms wish channel`.
-- `wish` is how the lock is wanted: 1 alone, `shared`, or `weight/permits`.

-- The longest expiry of a queue, in ms. Each look of a waiter starts it anew, and every waiter looks
-- again sooner than that.
local LONGEST = 301000

-- What is stored under a lock that one holds alone, or is closed, from now on.
local function held_by(owner)
  return owner .. ' ' .. string.sub(clock(), 1, -4)
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
  local owner, channel = string.match(entry or '', '^(%S+) %d+ %S+ (.+)$')
  if owner then
    redis.pcall('PUBLISH', channel, message(owner, 'first', ' ' .. remaining))
  end
end

-- Grants a lock that several may hold to those who wait, in their order, as long as it has room for the
-- first of them. That may be `asking`, the entry of the claim that runs this script, whose turn it is where
-- it is answered. A first one whose client is gone stands in nobody's way. Answers also whether the queue is
-- known to be empty.
local function serve(lock, queue, asking)
  local changed, swept = false, false
  while queue do
    local first = redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local entry, place = first[1], first[2]
    if not entry then
      return nil, true
    end
    local owner, ttl, wish, channel = string.match(entry, '^(%S+) (%d+) (%S+) (.+)$')
    local room = not owner or has_room(lock, wish)
    if not room and not swept then
      swept = true
      drop_expired(lock)
      room = has_room(lock, wish)
    end
    if entry == asking and room then
      redis.call('ZREM', queue, entry)
      return owner
    end
    if not room and (entry == asking or redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0) then
      break
    end
    redis.call('ZREM', queue, entry)
    changed = true
    if owner and not room then
      redis.pcall('PUBLISH', channel, message(owner, 'look', ''))
    elseif owner then
      local slot, alone = 0, wish == '1'
      if alone then
        slot = redis.pcall('SET', lock, held_by(owner), 'PX', ttl)
        slot = slot.err and slot or 0
      else
        slot = add(lock, owner, ttl, wish)
      end
      if type(slot) == 'table' then
        -- Where the write fails, nobody may believe to hold the lock.
        redis.call('ZADD', queue, place, entry)
        redis.call('PEXPIRE', queue, LONGEST)
        break
      end
      local heard = wake(channel, owner, 'grant', ' ' .. slot .. ' ' .. #lock .. ' ' .. lock .. queue)
      if not heard and alone then
        redis.call('DEL', lock)
      elseif not heard then
        drop(lock, owner)
        settle(lock)
      end
    end
  end
  if changed then
    local _, remaining = first_to_end(lock)
    wake_first(queue, remaining or redis.call('PTTL', lock))
  end
  return nil, false
end

-- Grants a lock that nobody holds to the first waiter whose client is subscribed, and to those behind it
-- who may hold it beside that one. The first may be `asking`, the entry of the claim that runs this script,
-- which is not sent a message and finds the lock free. Answers the new owner, or nothing where nobody is
-- left; and whether the queue is known to be empty.
local function grant_next(lock, queue, asking)
  local written, winner = false, nil
  local entry, place = pop_first(queue)
  while entry do
    local owner, ttl, wish, channel = string.match(entry, '^(%S+) (%d+) (%S+) (.+)$')
    if entry == asking then
      winner = owner
      break
    end
    if owner and wish ~= '1' then
      -- Whoever has the lock now has it alone.
      redis.call('DEL', lock)
      redis.call('ZADD', queue, place, entry)
      if redis.call('PTTL', queue) < 0 then
        redis.call('PEXPIRE', queue, LONGEST)
      end
      local first, empty = serve(lock, queue, asking)
      return first or kind_of(lock) and owner, empty
    end
    if owner then
      -- Written before it is published: where the write fails, nobody may believe to hold the lock.
      if redis.pcall('SET', lock, held_by(owner), 'PX', ttl).err then
        redis.call('ZADD', queue, place, entry)
        if redis.call('PTTL', queue) < 0 then
          redis.call('PEXPIRE', queue, LONGEST)
        end
        return nil, false
      end
      written = true
      if wake(channel, owner, 'grant', ' 0 ' .. #lock .. ' ' .. lock .. queue) then
        wake_first(queue, ttl)
        return owner, false
      end
    end
    entry, place = pop_first(queue)
  end
  -- It names a waiter who could not be woken. Who asks writes it itself.
  if written then
    redis.call('DEL', lock)
  end
  return winner, not entry
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
    local remaining = redis.call('PTTL', lock)
    -- Whoever wants less than it may have had to wait behind it.
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if first and remaining > 0 and not string.find(first, '^%S+ %d+ 1 ') then
      serve(lock, queue)
    end
    wake_first(queue, remaining)
  end
  return true
end

-- Has the value of whoever holds a lock alone say since when, where it is the owner alone: then its release looks
-- for those who wait. An id of the seventh version says itself when it was drawn.
local function say_since(lock, holder)
  if string.find(holder, '^%x+@%S+$') ~= 1 or string.find(holder, '@', 1, true) ~= 33
    or redis.pcall('GET', lock) ~= holder then
    return
  end
  local drawn = string.match(holder, '^(%x%x%x%x%x%x%x%x%x%x%x%x)7')
  local since = drawn and score(tonumber(drawn, 16)) or millis()
  redis.call('SET', lock, holder .. ' ' .. since, 'KEEPTTL')
end

-- Puts a claim that was refused into the queue of a lock, and adds to the answer its place and the time.
local function join(refusal, lock, queue, entry, wait)
  say_since(lock, refusal[3])
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  redis.call('ZADD', queue, 'NX', (tonumber(last[2]) or 0) + 1, entry)
  local expiry = math.min(wait + 1000, LONGEST)
  if redis.call('PTTL', queue) < expiry then
    redis.call('PEXPIRE', queue, expiry)
  end
  table.insert(refusal, redis.call('ZRANK', queue, entry))
  table.insert(refusal, clock())
  return refusal
end

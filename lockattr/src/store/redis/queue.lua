-- Who waits for a lock: a sorted set by order of arrival, of entries `owner ttl-in-ms permits channel`.

-- A queue is forgotten after so many ms: later than any of those in it looks again.
local LONGEST = 301000

-- The server's clock, in microseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] .. string.sub('00000' .. time[2], -6)
end

-- What is published to an owner: what names it and tells nobody who it is, a proof that we know it,
-- and what, when and the rest.
local function message(owner, what, rest)
  local text = what .. ' ' .. clock() .. rest
  local proof = redis.sha1hex(owner .. ' ' .. redis.sha1hex(owner .. ' ' .. text))
  return redis.sha1hex('waiter ' .. owner) .. ' ' .. proof .. ' ' .. text
end

-- Tells the owner of an entry something. Answers whether the owner's client has heard it: to those
-- who hear it PUBLISH counts onlookers who subscribe to patterns, which NUMSUB leaves out.
local function tell(channel, owner, what, rest)
  local clients = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if clients[2] == 0 then
    return false
  end
  local heard = redis.pcall('PUBLISH', channel, message(owner, what, rest))
  return type(heard) == 'number' and heard > 0
end

-- The first entry of a queue, taken out; nothing where the queue is empty or cannot be read.
local function first(queue)
  local taken = redis.pcall('ZPOPMIN', queue)
  return taken[1], taken[2]
end

-- With more than so many in a queue there is always one who looks soon, and finds what was missed.
local FEW = 10

-- Tells the first of a queue that it is, and for how many ms the lock is held yet: the first one
-- looks for itself when a wake-up may have been lost.
local function tell_first(queue, left)
  if redis.pcall('ZRANGE', queue, FEW, FEW)[1] then
    return
  end
  local entry = redis.pcall('ZRANGE', queue, 0, 0)[1]
  local owner, channel = string.match(entry or '', '^(%S+) %d+ %d+ (.+)$')
  if owner then
    redis.pcall('PUBLISH', channel, message(owner, 'first', ' ' .. left))
  end
end

-- Gives a lock that nobody holds any more to the first that waits for it and can be told, which may
-- be `me`, who needs not be told. Answers the owner, nothing where nobody is left who waits; and
-- whether the queue is known to have nobody in it.
local function pass(lock, index, queue, me)
  local aside, written, winner = {}, false, nil
  local entry, place = first(queue)
  while entry do
    local owner, ttl, permits, channel = string.match(entry, '^(%S+) (%d+) (%d+) (.+)$')
    if entry == me then
      winner = owner
    elseif owner and index >= tonumber(permits) then
      -- It counts fewer slots, and waits for one of those.
      table.insert(aside, {place, entry})
    elseif owner then
      -- Written before it is told: where nothing can be written, nobody may believe to hold it.
      if redis.pcall('SET', lock, owner, 'PX', ttl).err then
        table.insert(aside, {place, entry})
        break
      end
      written = true
      local what = ' ' .. index .. ' ' .. #lock .. ' ' .. lock .. queue
      if tell(channel, owner, 'grant', what) then
        winner = owner
        tell_first(queue, ttl)
      end
    end
    if winner then
      break
    end
    entry, place = first(queue)
  end
  if written and not winner then
    redis.call('DEL', lock)
  end
  for _, back in ipairs(aside) do
    redis.call('ZADD', queue, back[1], back[2])
  end
  -- It may have been emptied, and made anew without an expiry.
  if aside[1] and redis.call('PTTL', queue) < 0 then
    redis.call('PEXPIRE', queue, LONGEST)
  end
  return winner, not entry and not aside[1]
end

-- Takes one that waits no more out of a queue. Answers whether it stood there.
local function leave(lock, queue, entry)
  -- An error, where something else is in the queue's place.
  local place = redis.pcall('ZRANK', queue, entry)
  if type(place) ~= 'number' then
    return false
  end
  redis.call('ZREM', queue, entry)
  if place == 0 then
    tell_first(queue, redis.call('PTTL', lock))
  end
  return true
end

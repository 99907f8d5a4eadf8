-- Those who hold a lock together: readers, or holders of permits. They are kept under the lock's own key,
-- a sorted set, so that whoever wants it alone finds it taken:
--
--   member                              score
--   `owner`                             until when, in ms of the server's clock
--   `owner since`, of a reader          what `place_of` makes of the owner
--   `owner since slot weight permits`   the same
--   `shared`, or `permits`              SHARED less the weight of all holders
--   a number                            FREE and the number: a slot that is free, below others that are not
--
-- The key expires with the last of them: one that is there has a holder. Every step is logarithmic in the
-- number of holders.
local SHARED, FREE, ALL_FREE = -1e15, -2e15, -1.5e15

-- The server's clock, in microseconds: one moment in all of a run.
local now
local function clock()
  if not now then
    local time = redis.call('TIME')
    now = time[1] .. string.sub('00000' .. time[2], -6)
  end
  return now
end

local function millis()
  return tonumber(string.sub(clock(), 1, -4))
end

local function score(number)
  return string.format('%.0f', number)
end

local function place_of(owner)
  return '-' .. score(tonumber(string.sub(redis.sha1hex(owner), 1, 12), 16) + 1)
end

-- What is said of a holder.
local function said_of(lock, owner)
  local place = place_of(owner)
  for _, said in ipairs(redis.call('ZRANGEBYSCORE', lock, place, place)) do
    if string.find(said, owner .. ' ', 1, true) == 1 then
      return said
    end
  end
  return owner
end

-- Who holds a lock: nobody, `permits` and how many of them, `shared`, or `other`: one alone, or what is no
-- lock.
local function kind_of(lock)
  local used = redis.pcall('ZSCORE', lock, 'permits')
  if type(used) == 'table' then
    if not string.find(used.err, 'WRONGTYPE', 1, true) then
      -- Fails again, and ends the script with that error.
      redis.call('ZSCORE', lock, 'permits')
    end
    return 'other'
  end
  if used then
    return 'permits', SHARED - tonumber(used)
  end
  if redis.call('ZSCORE', lock, 'shared') then
    return 'shared'
  end
  if redis.call('PTTL', lock) ~= -2 then
    return 'other'
  end
end

-- Whether a lock has room for what is wanted of it, as it is written in an entry of its queue: 1 alone,
-- `shared`, or `weight/permits`.
local function has_room(lock, wish)
  local kind, used = kind_of(lock)
  if not kind then
    return true
  end
  local weight, permits = string.match(wish, '^(%d+)/(%d+)$')
  if kind == 'permits' then
    return weight and used + tonumber(weight) <= tonumber(permits) or false
  end
  return kind == 'shared' and wish == 'shared'
end

-- The key ends with the last holder, and is gone where nobody is left. Answers whether somebody is.
local function settle(lock)
  local last = redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')
  if (tonumber(last[2]) or 0) <= 0 then
    redis.call('DEL', lock)
    return false
  end
  redis.call('PEXPIREAT', lock, last[2])
  return true
end

-- Starts the ttl of a holder anew, where less is left.
local function prolong(lock, owner, expiry, ttl)
  if tonumber(expiry) < millis() + ttl then
    redis.call('ZADD', lock, score(millis() + ttl), owner)
    settle(lock)
  end
end

-- Adds a holder to a lock that has room. Answers its slot, or an error.
local function add(lock, owner, ttl, wish)
  local weight, permits = string.match(wish, '^(%d+)/(%d+)$')
  local kind, used = kind_of(lock)
  local before = kind and redis.call('ZSCORE', lock, owner)
  if before then
    prolong(lock, owner, before, ttl)
    return tonumber(string.match(said_of(lock, owner), '^%S+ %d+ (%d+)')) or 0
  end
  local said, slot, head = owner .. ' ' .. millis(), 0, {'shared', score(SHARED)}
  local free
  if weight then
    free = used and redis.call('ZRANGEBYSCORE', lock, FREE, ALL_FREE, 'LIMIT', 0, 1)[1]
    -- Where no slot below is free, as many are taken as there are holders, who are two members each.
    slot = tonumber(free) or used and (redis.call('ZCARD', lock) - 1) / 2 or 0
    said = said .. ' ' .. slot .. ' ' .. weight .. ' ' .. permits
    head = {'permits', score(SHARED - (used or 0) - weight)}
  end
  local expiry = score(millis() + ttl)
  local added = redis.pcall(
    'ZADD', lock, head[2], head[1], expiry, owner, place_of(owner), said)
  if type(added) == 'table' then
    return added
  end
  if free then
    redis.call('ZREM', lock, free)
  end
  settle(lock)
  return slot
end

-- Ends a hold. The key is to be settled after it.
local function drop(lock, owner)
  local said = said_of(lock, owner)
  local slot, weight = string.match(said, ' %d+ (%d+) (%d+) %d+$')
  local _, used = kind_of(lock)
  slot = used and slot
  if slot then
    -- Both rights are tried before anything changes: the weight that is written has to be that of who is there. A
    -- server without memory takes further writes of a script that has written.
    redis.call('ZREM', lock, '')
    redis.call('ZADD', lock, 'XX', score(SHARED - used), 'permits')
  end
  redis.call('ZREM', lock, owner, said)
  if slot then
    redis.call('ZADD', lock, score(SHARED - used + weight), 'permits', score(FREE + slot), slot)
  end
end

-- Ends the holds whose time is over, of a lock that is held together.
local function drop_expired(lock)
  local kind = kind_of(lock)
  if kind ~= 'shared' and kind ~= 'permits' then
    return
  end
  local over = redis.call('ZRANGEBYSCORE', lock, 1, '(' .. millis())
  for _, owner in ipairs(over) do
    drop(lock, owner)
  end
  if over[1] then
    settle(lock)
  end
end

-- Of those who hold a lock together, who ends first: the owner with since when, and for how many ms yet.
-- Nothing where it is no such lock, or the last of them has ended in this moment.
local function first_to_end(lock)
  local kind = kind_of(lock)
  if kind == 'shared' or kind == 'permits' then
    local first = redis.call(
      'ZRANGEBYSCORE', lock, millis(), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if first[1] then
      local said = string.match(said_of(lock, first[1]), '^%S+ %d+')
      return said or first[1], first[2] - millis()
    end
  end
end

-- Why a lock cannot be had under whose key something stands: 0 busy, with who holds it and for how many ms
-- yet; 2 done, with that; -1 and what it is that is no lock; or 1 where it can be had, since time in a script
-- goes on, and keys do not expire by it.
local function refusal_of(lock, holder)
  if type(holder) == 'table' then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then
      -- Fails again, and ends the script with that error.
      redis.call('GET', lock)
    end
    local first, remaining = first_to_end(lock)
    if first then
      return 0, first, remaining
    end
    if kind_of(lock) ~= 'other' then
      return 1
    end
    return -1, 'a ' .. redis.call('TYPE', lock).ok
  end
  local remaining = redis.call('PTTL', lock)
  if remaining == -1 then
    return -1, 'a string without expiry'
  end
  if string.find(holder, '^done@%d+$') then
    return 2, holder
  end
  return 0, string.sub(holder, 1, 256), remaining
end


-- What stands under a lock, as {kind, value, remaining ms}: the value of a string, the members and scores of a sorted
-- set, and nothing of other kinds. An empty table where nothing does; or the server's error.
local function read_lock(lock)
  local value = redis.pcall('GET', lock)
  if not value then
    return {}
  end
  local kind = 'string'
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then
      return value
    end
    kind = redis.call('TYPE', lock).ok
    value = kind == 'zset' and redis.call('ZRANGE', lock, 0, -1, 'WITHSCORES') or ''
  end
  return {kind, value, redis.call('PTTL', lock)}
end

-- How many stand in a queue: nobody in what is none; or the server's error.
local function count_waiters(queue)
  local waiters = redis.pcall('ZCARD', queue)
  if type(waiters) == 'table' and string.find(waiters.err, 'WRONGTYPE', 1, true) then
    return 0
  end
  return waiters
end

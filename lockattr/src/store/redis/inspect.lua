-- Reads a lock as it stands in one moment, and writes nothing.
-- KEYS: the lock, and its queue.  ARGV: the last entry of the queue that is wanted.
-- Answers what stands under the lock as {kind, value, remaining ms}, or nothing: the value of a string, the
-- members and scores of a sorted set, and nothing of other kinds; how many wait; and the first of them, in
-- their order.
local found = {}
local value = redis.pcall('GET', KEYS[1])
if value then
  local kind = 'string'
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then
      return value
    end
    kind = redis.call('TYPE', KEYS[1]).ok
    value = kind == 'zset' and redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES') or ''
  end
  found = {kind, value, redis.call('PTTL', KEYS[1])}
end
local queue = KEYS[2]
local waiters = redis.pcall('ZCARD', queue)
if type(waiters) == 'table' then
  if not string.find(waiters.err, 'WRONGTYPE', 1, true) then
    return waiters
  end
  return {found, 0, {}}
end
return {found, waiters, redis.call('ZRANGE', queue, 0, ARGV[1])}

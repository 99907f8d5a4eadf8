-- Reads a lock as it stands in one moment, and writes nothing.
-- KEYS: the lock, its other slots, and its queue.  ARGV: the last entry of the queue that is wanted.
-- Answers what stands under the keys as {i, kind, value, remaining ms}, i counting the keys from 0 and the
-- value of another kind than a string left empty; how many wait; and the first of them, in their order.
local found = {}
for i = 1, #KEYS - 1 do
  local value = redis.pcall('GET', KEYS[i])
  if value then
    local kind = 'string'
    if type(value) == 'table' then
      if not string.find(value.err, 'WRONGTYPE', 1, true) then
        return value
      end
      kind, value = redis.call('TYPE', KEYS[i]).ok, ''
    end
    table.insert(found, {i - 1, kind, value, redis.call('PTTL', KEYS[i])})
  end
end
local queue = KEYS[#KEYS]
local waiters = redis.pcall('ZCARD', queue)
if type(waiters) == 'table' then
  if not string.find(waiters.err, 'WRONGTYPE', 1, true) then
    return waiters
  end
  return {found, 0, {}}
end
return {found, waiters, redis.call('ZRANGE', queue, 0, ARGV[1])}

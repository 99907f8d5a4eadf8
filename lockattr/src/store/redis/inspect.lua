-- Reads a lock as it stands in one moment, and writes nothing.
-- KEYS: the lock, its other slots, and its queue.  ARGV: the last entry of the queue that is wanted.
-- Answers what stands under the keys as {i, kind, value, remaining ms}, i counting the keys from 0 and the
-- value of another kind than a string left empty; how many wait; and the first of them, in their order.
local found = read_slots(#KEYS - 1)
if found.err then
  return found
end
local waiters = count_waiters(KEYS[#KEYS])
if type(waiters) == 'table' then
  return waiters
end
if waiters == 0 then
  return {found, 0, {}}
end
return {found, waiters, redis.call('ZRANGE', KEYS[#KEYS], 0, ARGV[1])}

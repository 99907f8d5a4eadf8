-- Reads a lock as it stands in one moment, and writes nothing.
-- KEYS: the lock, and its queue.  ARGV: the last entry of the queue that is wanted.
-- Answers what `read_lock` finds; how many wait; and the first of them, in their order.
local found = read_lock(KEYS[1])
if found.err then
  return found
end
local waiters = count_waiters(KEYS[2])
if type(waiters) == 'table' then
  return waiters
end
if waiters == 0 then
  return {found, 0, {}}
end
return {found, waiters, redis.call('ZRANGE', KEYS[2], 0, ARGV[1])}

-- Reads what stands under a lock in one moment, and writes nothing.
-- KEYS: the lock, and its queue, which is left out where it may be on another node.
-- Answers what `read_lock` finds, and how many wait.
local found = read_lock(KEYS[1])
if found.err then
  return found
end
local waiters = KEYS[2] and count_waiters(KEYS[2]) or 0
if type(waiters) == 'table' then
  return waiters
end
return {found, waiters}

-- Reads what stands under a lock in one moment, and writes nothing.
-- KEYS: the lock, its other slots, and its queue, which is left out where it may be on another node.
-- ARGV: how many slots.
-- Answers what `read_slots` finds, and how many wait.
local slots = tonumber(ARGV[1])
local found = read_slots(slots)
if found.err then
  return found
end
local waiters = KEYS[slots + 1] and count_waiters(KEYS[slots + 1]) or 0
if type(waiters) == 'table' then
  return waiters
end
return {found, waiters}

-- Acquires a lock that others may hold beside the claim, and joins its queue.
-- KEYS: the lock; then its queue, unless that may be on another node: then nobody is passed it, and nobody
-- joins.
-- ARGV: owner, ttl in ms, and how the lock is wanted: `shared`, or `weight/permits`; of a claim that waits,
-- or has waited, its entry in the queue, and for how many ms more it waits.
-- Answers {1, slot} granted, and otherwise as `contend.lua`.
local lock, queue = KEYS[1], KEYS[2]
local owner, ttl, wish = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local own_entry, wait = ARGV[4], tonumber(ARGV[5] or 0)

local kind = kind_of(lock)
if kind == 'shared' or kind == 'permits' then
  drop_expired(lock)
  if redis.call('ZSCORE', lock, owner) then
    -- It was granted before, and its answer or message has not come.
    if own_entry then
      leave(lock, queue, own_entry)
    end
    return {1, add(lock, owner, ttl, wish)}
  end
end

-- Those who wait come before those who arrive.
local first, empty = nil, not queue
if kind ~= 'other' then
  first, empty = serve(lock, queue, own_entry)
  empty = empty or not queue
end
if first or empty and has_room(lock, wish) then
  local slot = add(lock, owner, ttl, wish)
  if type(slot) == 'table' then
    return slot
  end
  if first then
    serve(lock, queue)
    wake_first(queue, ttl)
  end
  return {1, slot}
end

local refusal = {0, 0, '', 0}
local holder = redis.pcall('GET', lock)
if holder then
  local state, what, remaining = refusal_of(lock, holder)
  -- Where the last holder has ended in this moment, it is asked for again soon.
  refusal = state == 1 and refusal or {state, 0, what, remaining}
end
if own_entry and (refusal[1] ~= 0 or wait <= 0) then
  leave(lock, queue, own_entry)
end
if refusal[1] ~= 0 or wait <= 0 or not queue then
  return refusal
end
return join(refusal, lock, queue, own_entry, wait)

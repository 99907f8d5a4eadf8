-- What most releases are: of one lock, for which nobody waits, and which is left free. First of all,
-- since whatever else a script defines costs time each time that it runs.
local ours
if not ARGV[2] then
  local found = find(KEYS[1], ARGV[1])
  if found ~= 1 then
    return found
  end
  -- Cheaper than to take the first of a queue that is not there.
  if redis.pcall('PTTL', KEYS[2]) == -2 then
    redis.call('DEL', KEYS[1])
    return 1
  end
  ours = true
end

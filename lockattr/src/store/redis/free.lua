-- The short form of a release: of one lock, which is left free; without its queue where that may be on
-- another node. It comes before everything else, since
-- each function that a script defines costs time in every run. Sets `ours` where somebody waits for the
-- lock, and leaves the rest to `release.lua`.
local ours
if not ARGV[2] then
  local found, several = find(KEYS[1], ARGV[1])
  if found ~= 1 then
    return found
  end
  ours = not several
  -- Cheaper than to pop the first entry of a queue that does not exist.
  if ours and (not KEYS[2] or redis.pcall('PTTL', KEYS[2]) == -2) then
    redis.call('DEL', KEYS[1])
    return 1
  end
end

-- What most releases are: of one lock, with nothing to be left. First of all, since whatever else a
-- script defines costs time each time that it runs.
local taken
if not ARGV[2] then
  local held = redis.pcall('GET', KEYS[1])
  if held ~= ARGV[1] then
    return held and 2 or 0
  end
  taken = redis.pcall('ZPOPMIN', KEYS[2])
  if not taken[1] then
    redis.call('DEL', KEYS[1])
    return 1
  end
end

-- The short form of a release: of one lock that is left free, and whose value is its owner alone. Nobody waits for
-- that one: whoever begins to, or looks again, has the value say since when it is held. Those who have waited since the
-- holder before, whose ttl has ended, have looked by now, or find the lock free when they do. To ask for their queue in
-- every release would cost a quarter of it. It comes before everything else, since each function that a script defines
-- costs time in every run.
if not ARGV[2] and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end

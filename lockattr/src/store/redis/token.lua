-- Draws a fencing token for an owner: the larger of the server's clock in microseconds and the last token
-- of its locks + 1, so that tokens grow also where a counter was lost, and no smaller than what was drawn
-- elsewhere. None is drawn unless the owner holds every key: the token would be larger than that of
-- whoever has taken the rest.
-- KEYS: the locks that the owner holds, then their counters.
-- ARGV: owner, the counters' expiry in ms, how many locks it holds; the smallest token, or nothing; 'shares' where
-- others may hold the lock beside it.
-- Answers the token in decimal; or of the first key that is not held 0 nothing there, 2 another's.
local held = tonumber(ARGV[3])
for i = 1, held do
  local found = find(KEYS[i], ARGV[1], ARGV[5] == 'shares')
  if found ~= 1 then
    return found
  end
end
local time = redis.call('TIME')
local token = math.max(time[1] * 1000000 + time[2], tonumber(ARGV[4] or 0))
for i = held + 1, #KEYS do
  local last = tonumber(redis.call('GET', KEYS[i]) or 0) or 0
  token = math.max(token, last + 1)
end
local digits = string.format('%.0f', token)
for i = held + 1, #KEYS do
  redis.call('SET', KEYS[i], digits, 'PX', ARGV[2])
end
return digits

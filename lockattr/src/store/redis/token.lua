-- Draws a fencing token for an owner: the larger of the clock in microseconds and the last token of
-- its locks + 1, so that tokens grow also where a counter was lost.
-- KEYS: a key that the owner holds, the locks' counters.  ARGV: owner, the counters' expiry in ms.
-- Answers the token in decimal, or 0 nothing there, 2 another's.
local held = redis.pcall('GET', KEYS[1])
if held ~= ARGV[1] then
  return held and 2 or 0
end
local time = redis.call('TIME')
local token = time[1] * 1000000 + time[2]
for i = 2, #KEYS do
  local last = tonumber(redis.call('GET', KEYS[i]) or 0) or 0
  token = math.max(token, last + 1)
end
local digits = string.format('%.0f', token)
for i = 2, #KEYS do
  redis.call('SET', KEYS[i], digits, 'PX', ARGV[2])
end
return digits

-- Draws a fencing token for the owner of a lock: the larger of the clock in microseconds and the
-- last token + 1, so that tokens grow also where the counter was lost.
-- KEYS: lock, counter.  ARGV: owner, the counter's expiry in ms.
-- Answers the token in decimal, or 0 nothing there, 2 another's.
local held = redis.pcall('GET', KEYS[1])
if held ~= ARGV[1] then
  return held and 2 or 0
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[2]) or 0) or 0
local token = string.format('%.0f', math.max(now, last + 1))
redis.call('SET', KEYS[2], token, 'PX', ARGV[2])
return token

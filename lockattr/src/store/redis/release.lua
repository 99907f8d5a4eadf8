-- Ends an owner's hold of the locks that it still holds.
-- KEYS: locks.  ARGV: owner; and where something is to be left, 'closed' or 'done', and its ms.
-- Answers 1 where it held all of them, 0 where one was gone, 2 where one was another's.
local answer = 1
for _, lock in ipairs(KEYS) do
  local held = redis.pcall('GET', lock)
  if held ~= ARGV[1] then
    answer = held and 2 or 0
  elseif not ARGV[2] then
    redis.call('DEL', lock)
  elseif ARGV[2] == 'closed' then
    -- The same place, but an id that no lease has: nothing can renew or release it.
    local closed = string.rep('0', 32) .. string.sub(held, 33)
    redis.call('SET', lock, closed, 'PX', ARGV[3])
  else
    local time = redis.call('TIME')
    local since = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    redis.call('SET', lock, 'done@' .. since, 'PX', ARGV[3])
  end
end
return answer

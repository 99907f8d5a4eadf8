-- What stands under the first `count` keys, as {i, kind, value, remaining ms}, i counting the keys from 0 and the
-- value of another kind than a string left empty; or the server's error.
local function read_slots(count)
  local found = {}
  for i = 1, count do
    local value = redis.pcall('GET', KEYS[i])
    if value then
      local kind = 'string'
      if type(value) == 'table' then
        if not string.find(value.err, 'WRONGTYPE', 1, true) then
          return value
        end
        kind, value = redis.call('TYPE', KEYS[i]).ok, ''
      end
      table.insert(found, {i - 1, kind, value, redis.call('PTTL', KEYS[i])})
    end
  end
  return found
end

-- How many stand in a queue: nobody in what is none; or the server's error.
local function count_waiters(queue)
  local waiters = redis.pcall('ZCARD', queue)
  if type(waiters) == 'table' and string.find(waiters.err, 'WRONGTYPE', 1, true) then
    return 0
  end
  return waiters
end

-- Starts the ttl anew of every lock that its owner still holds; creates none.
-- KEYS: locks.  ARGV: owner and ttl in ms, for each lock in turn. A lock keeps what is left of it where
-- that is longer, since this may be carried out late; but not where `=` stands before the ttl. `+` behind it
-- says that others may hold the lock beside the owner. What is renewed is written also where nothing changes, so
-- that replicas have it when they acknowledge this.
-- Answers for each lock 1 renewed, 0 nothing there, 2 another's, or the error that kept it from being
-- read or renewed.

-- Renews one of several that hold a lock. The key's expiry is written first: a server without memory takes
-- further writes of a script that has written, and that one it always takes.
local function renew_beside(lock, owner, expiry, exact, ttl)
  local time = redis.call('TIME')
  local new = math.floor(time[1] * 1000 + time[2] / 1000) + ttl
  local last = tonumber(redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2])
  redis.call('PEXPIREAT', lock, string.format('%.0f', math.max(new, last)))
  if exact ~= '' or expiry < new then
    redis.call('ZADD', lock, string.format('%.0f', new), owner)
    if new < expiry then
      last = redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2]
      redis.call('PEXPIREAT', lock, last)
    end
  end
  return 1
end

local answers = {}
for i, lock in ipairs(KEYS) do
  local exact, ttl, shares = string.match(ARGV[2 * i], '^(=?)(%d+)(%+?)$')
  local found, expiry, owner = find(lock, ARGV[2 * i - 1], shares ~= '')
  if expiry then
    local _, renewed = pcall(renew_beside, lock, owner, expiry, exact, ttl)
    found = type(renewed) == 'string' and {err = renewed} or renewed
  elseif found == 1 then
    local left = exact == '' and redis.pcall('PTTL', lock) or -1
    if type(left) == 'table' then
      found = left
    elseif left <= tonumber(ttl) then
      found = redis.pcall('PEXPIRE', lock, ttl)
    end
  end
  answers[i] = found
end
return answers

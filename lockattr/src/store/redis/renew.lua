-- Starts the ttl anew of every lock that its owner still holds; creates none.
-- KEYS: locks.  ARGV: owner and ttl in ms, for each lock in turn. A lock keeps what is left of it where
-- that is longer, since this may be carried out late; but not where `=` stands before the ttl. What is
-- renewed is written also where nothing changes, so that replicas have it when they acknowledge this.
-- Answers for each lock 1 renewed, 0 nothing there, 2 another's, or the error that kept it from being
-- read or renewed.
local answers = {}
for i, lock in ipairs(KEYS) do
  local found = find(lock, ARGV[2 * i - 1])
  if found == 1 then
    local exact, ttl = string.match(ARGV[2 * i], '^(=?)(%d+)$')
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

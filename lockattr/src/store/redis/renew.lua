-- Starts the ttl anew of every lock that its owner still holds; creates none.
-- KEYS: locks.  ARGV: owner and ttl in ms, for each lock in turn.
-- Answers for each lock 1 renewed, 0 nothing there, 2 another's, or the error that kept it from being
-- read or renewed.
local answers = {}
for i, lock in ipairs(KEYS) do
  local found = find(lock, ARGV[2 * i - 1])
  answers[i] = found == 1 and redis.pcall('PEXPIRE', lock, ARGV[2 * i]) or found
end
return answers

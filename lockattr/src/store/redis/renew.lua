-- Starts the ttl anew of every lock that its owner still holds; creates none.
-- KEYS: locks.  ARGV: owner and ttl in ms, for each lock in turn.
-- Answers for each lock: 1 renewed, 0 nothing there, 2 another's.
local answers = {}
for i, lock in ipairs(KEYS) do
  local held = redis.pcall('GET', lock)
  if held == ARGV[2 * i - 1] then
    redis.call('PEXPIRE', lock, ARGV[2 * i])
    answers[i] = 1
  else
    answers[i] = held and 2 or 0
  end
end
return answers

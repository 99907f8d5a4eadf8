-- What is stored under a lock: 1 the owner, 0 nothing, 2 another owner or something that is no lock.
-- The owner stands there alone or with more behind a space, or is one of several that hold the lock, as
-- `holders.lua` has it: then also until when, and the whole of what names it. Of several that hold it with
-- others, 0 where it is none of them. Where it could not be read, the server's error, which says nothing
-- about who holds the lock.
local function find(lock, owner, shares)
  local holder = redis.pcall('GET', lock)
  if holder == owner then
    return 1
  end
  if not holder then
    return 0
  end
  if type(holder) == 'string' then
    return string.find(holder, owner .. ' ', 1, true) == 1 and 1 or 2
  end
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then
    return holder
  end
  local id = string.match(owner, '^%S*')
  local expiry = redis.pcall('ZSCORE', lock, id)
  local time = redis.call('TIME')
  if type(expiry) == 'table' then
    return string.find(expiry.err, 'WRONGTYPE', 1, true) and 2 or expiry
  end
  if not expiry or tonumber(expiry) < math.floor(time[1] * 1000 + time[2] / 1000) then
    return shares and 0 or 2
  end
  if id ~= owner then
    -- What nobody holds is known by since when as well.
    local place = string.format('-%.0f', tonumber(string.sub(redis.sha1hex(id), 1, 12), 16) + 1)
    local named = redis.call('ZRANGEBYSCORE', lock, place, place)[1] or ''
    if string.find(named .. ' ', owner .. ' ', 1, true) ~= 1 then
      return 2
    end
  end
  return 1, tonumber(expiry), id
end

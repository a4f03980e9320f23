-- The plain lane: takes and releases locks that no other client wants.
-- KEYS: counter, and the lock of each call.
-- ARGV: the number of locks to take; then for each call that takes a lock its record up to the time
-- and its TTL in ms, or for each call that releases one the whole record and ''.
-- Returns the time in µs, and then the result of each call. For a call that takes a lock, it is the
-- token, or the record that is there and its PTTL, or false if no tokens are left or the key is not
-- a lock. For a call that releases one, it is the number of records that were removed.
local taken, replies = tonumber(ARGV[1]), {micro}
if taken < #KEYS - 1 then
  -- Releases come first. At maxmemory Redis stops a script whose first write needs memory, but
  -- not one whose first write frees it.
  for i = 2, #KEYS do
    if ARGV[2 * i - 1] == '' then
      local n = redis.pcall('LREM', KEYS[i], '1', ARGV[2 * i - 2])
      replies[i] = type(n) == 'number' and n or 0
    end
  end
end
if taken > 0 then
  local token, n = reserve(taken, taken, 0)
  local last = token + n - 1
  -- %d is faster than %.0f, but a 32-bit server cannot print large numbers with it.
  local tail = string.format('%d', 4294967296) == '4294967296' and '%s%d\t1\t%d' or '%s%.0f\t1\t%.0f'
  for i = 2, #KEYS do
    local key, ttl = KEYS[i], ARGV[2 * i - 1]
    if ttl ~= '' then
      -- An error for one key must not make the calls for other keys fail.
      local length = token <= last and redis.pcall('RPUSH', key, string.format(tail, ARGV[2 * i - 2], now, token))
      if length == 1 then
        call('PEXPIRE', key, ttl)
        replies[i] = token
      elseif type(length) == 'number' then
        call('RPOP', key)
        replies[i] = {call('LINDEX', key, '0'), call('PTTL', key)}
      else
        replies[i] = false
      end
      token = token + 1
    end
  end
end
return replies

-- The plain lane: takes and releases locks that no other client wants.
-- KEYS and, for each key, two ARGV:
--   a lock to release   its record, ''
--   a counter           how many of the following locks take their tokens from it, their floor
--   a lock to take      its record up to the time, its TTL in ms
-- Locks to release come first, because at maxmemory Redis does not stop a script whose first write frees
-- memory. Returns the time in µs, and for each lock to release, the number of records that were removed; for
-- each lock to take, the token, or the record that is there and its PTTL, or false if no tokens are left or
-- the key is not a lock.
local replies, i, keys = {micro}, 1, #KEYS
while ARGV[2 * i] == '' do
  local n = redis.pcall('LREM', KEYS[i], '1', ARGV[2 * i - 1])
  replies[i + 1] = type(n) == 'number' and n or 0
  i = i + 1
end
-- %d is faster than %.0f, but a 32-bit server cannot print large numbers with it.
local tail = string.format('%d', 4294967296) == '4294967296' and '%s%d\t1\t%d' or '%s%.0f\t1\t%.0f'
while i <= keys do
  local counter, n = KEYS[i], tonumber(ARGV[2 * i - 1])
  local token, tokens = reserve(counter, n, n, tonumber(ARGV[2 * i]))
  local last = token + tokens - 1
  for k = i + 1, i + n do
    -- An error for one key must not make the calls for other keys fail.
    local length = token <= last and redis.pcall('RPUSH', KEYS[k], string.format(tail, ARGV[2 * k - 1], now, token))
    local reply = false
    if length == 1 then
      call('PEXPIRE', KEYS[k], ARGV[2 * k])
      reply, token = token, token + 1
    elseif length and type(length) == 'number' then
      call('RPOP', KEYS[k])
      reply = {call('LINDEX', KEYS[k], '0'), call('PTTL', KEYS[k])}
    end
    replies[#replies + 1] = reply
  end
  if token <= last then -- a refused call must not make the counters of quorum nodes differ
    call('INCRBY', counter, token - last - 1)
  end
  i = i + n + 1
end
return replies

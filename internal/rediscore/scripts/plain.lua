-- The plain lane: takes and releases locks that no other client wants.
-- KEYS: the lock of each call, then the counters. Calls that release a lock come first. Then come
-- the calls that take one, in the order of their counters.
-- ARGV: the number of calls; for each call its record and '' to release a lock, or its record up to
-- the time and its TTL in ms to take one; for each counter its number of calls and the floor of
-- their tokens.
-- Returns the time in µs, and then the result of each call. For a call that takes a lock, it is the
-- token, or the record that is there and its PTTL, or false if no tokens are left or the key is not
-- a lock. For a call that releases one, it is the number of records that were removed.
local calls, replies, i = tonumber(ARGV[1]), {micro}, 1
-- Releases come first because at maxmemory Redis stops a script whose first write needs memory, but
-- not one whose first write frees it.
while i <= calls and ARGV[2 * i + 1] == '' do
  local n = redis.pcall('LREM', KEYS[i], '1', ARGV[2 * i])
  replies[i + 1] = type(n) == 'number' and n or 0
  i = i + 1
end
-- %d is faster than %.0f, but a 32-bit server cannot print large numbers with it.
local tail = string.format('%d', 4294967296) == '4294967296' and '%s%d\t1\t%d' or '%s%.0f\t1\t%.0f'
for c = calls + 1, #KEYS do
  local n = tonumber(ARGV[2 * c])
  local token, tokens = reserve(KEYS[c], n, n, tonumber(ARGV[2 * c + 1]))
  local last = token + tokens - 1
  for _ = 1, n do
    local key = KEYS[i]
    -- An error for one key must not make the calls for other keys fail.
    local length = token <= last and redis.pcall('RPUSH', key, string.format(tail, ARGV[2 * i], now, token))
    if length == 1 then
      call('PEXPIRE', key, ARGV[2 * i + 1])
      replies[i + 1] = token
      token = token + 1
    elseif type(length) == 'number' then
      call('RPOP', key)
      replies[i + 1] = {call('LINDEX', key, '0'), call('PTTL', key)}
    else
      replies[i + 1] = false
    end
    i = i + 1
  end
  if token <= last then -- a refused call must not make the counters of quorum nodes differ
    call('DECRBY', KEYS[c], last - token + 1)
  end
end
return replies

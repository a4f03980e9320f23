-- The plain lane: takes and releases locks that nobody else wants. Behind tokens.lua.
-- KEYS: counter, and the lock of each call. ARGV: how many are taken; then for each call its
-- record up to the time, and its TTL in ms; or to release it its record, and ''.
-- Returns the time in µs, then for each call: the token, or what is in the way (the record,
-- its PTTL, the last token), or nothing if no tokens are left; how many were released.
local token, last, tail = 0, -1, nil
if ARGV[1] ~= '0' then
  local n
  token, n = reserve(ARGV[1], ARGV[1], 0)
  last = token + n - 1
  -- %d is quicker than %.0f, but a 32-bit server cannot print large numbers by it.
  tail = string.format('%d', 4294967296) == '4294967296' and '%s%d\t1\t%d' or '%s%.0f\t1\t%.0f'
end
local answers = {micro}
for i = 2, #KEYS do
  local key, record, ttl = KEYS[i], ARGV[2 * i - 2], ARGV[2 * i - 1]
  if ttl == '' then
    answers[i] = call('LREM', key, '1', record)
  elseif token > last then
    answers[i] = false
  else
    if call('RPUSH', key, string.format(tail, record, now, token)) == 1 then
      call('PEXPIRE', key, ttl)
      answers[i] = token
    else
      call('RPOP', key)
      answers[i] = {call('LINDEX', key, '0'), call('PTTL', key), token}
    end
    token = token + 1
  end
end
return answers

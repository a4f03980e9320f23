-- The plain lane: takes and releases locks that nobody else wants. Behind tokens.lua.
-- KEYS: counter, and the lock of each call. ARGV: how many are taken; then for each call its
-- record up to the time, and its TTL in ms; or to release it its record, and ''.
-- Returns the time in µs, then for each call: the token, or what is in the way (the record,
-- its PTTL, the last token), or nothing if no tokens are left; how many were released.
local count, since = tonumber(ARGV[1]), string.format('%.0f', now)
local token, last = 0, -1
if count > 0 then
  local n
  token, n = reserve(count, count, 0)
  last = token + n - 1
end
-- %d is quicker than %.0f, but cannot print a token on a 32-bit server.
local tail = tonumber(string.format('%d', token)) == token and '%s%s\t1\t%d' or '%s%s\t1\t%.0f'
local answers = {micro}
for i = 2, #KEYS do
  local key, record, ttl = KEYS[i], ARGV[2 * i - 2], ARGV[2 * i - 1]
  if ttl == '' then
    answers[i] = call('LREM', key, '1', record)
  elseif token > last then
    answers[i] = false
  else
    if call('RPUSH', key, string.format(tail, record, since, token)) == 1 then
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

-- Many plain locks at once, taken as by take.lua or given back.
-- KEYS: counter, and a lock for each. ARGV: the server's clock in us as the caller knows it, and
-- how many are taken; then for each its record, and its TTL in ms or '' to give it back.
-- Returns for each what take.lua does, or how many were given back: 1, or 0 if it was not there.
local count = tonumber(ARGV[2])
local token, text = false, '%d'
if count > 0 then
  token = redis.call('INCRBY', KEYS[1], ARGV[2]) - count + 1
  if token < ARGV[1] - 200000 then
    if token < 1e15 then
      token = false -- the counter was lost
    else
      token = tonumber(ARGV[1])
      redis.call('SET', KEYS[1], string.format('%.0f', token + count - 1))
    end
  end
  if token and tonumber(string.format(text, token)) ~= token then
    text = '%.0f'
  end
end
local answers = {}
for i = 2, #KEYS do
  local key, record, ttl = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]
  if ttl == '' then
    answers[i - 1] = redis.call('LREM', key, '1', record)
  elseif not token then
    answers[i - 1] = false
  else
    if redis.call('RPUSH', key, record .. string.format(text, token)) == 1 then
      redis.call('PEXPIRE', key, ttl)
      answers[i - 1] = token
    else
      redis.call('RPOP', key)
      answers[i - 1] = {redis.call('LINDEX', key, '0'), redis.call('PTTL', key), token}
    end
    token = token + 1
  end
end
return answers

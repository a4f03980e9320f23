-- The plain way to a lock: nobody holds it, nobody waits, the caller wants it alone.
-- KEYS: lock, counter. ARGV: record without its token, TTL in ms, the server's clock in us as
-- the caller knows it.
-- Returns the token, or what is in the way: its record, its time left, and the last token.
local token = redis.call('INCR', KEYS[2])
-- Tokens are set to the clock when they are 200 ms behind. A failover to a replica that lags
-- behind takes longer; so the first token of the new primary is above those that the old one
-- gave, even the ones that the replica never heard of.
if token < ARGV[3] - 200000 then
  if token < 1e15 then
    return false -- the counter was lost: acquire.lua asks the clock itself
  end
  token = tonumber(ARGV[3])
  redis.call('SET', KEYS[2], ARGV[3])
end
-- %d is quicker than %.0f, but on a server of 32 bits it cannot print a token.
local text = string.format('%d', token)
if tonumber(text) ~= token then
  text = string.format('%.0f', token)
end
if redis.call('RPUSH', KEYS[1], ARGV[1] .. text) == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return token
end
redis.call('RPOP', KEYS[1])
return {redis.call('LINDEX', KEYS[1], '0'), redis.call('PTTL', KEYS[1]), token}

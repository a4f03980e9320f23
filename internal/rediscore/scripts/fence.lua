-- Runs a command on a key, unless somebody with a higher token was there before.
-- KEYS: the key, its fence. ARGV: token, command, what follows the key; or the token alone.
-- Returns {0, highest token} if it is refused, else {1, the command's answer}.
local highest = tonumber(redis.call('GET', KEYS[2]) or 0)
local token = tonumber(ARGV[1])
if token < highest then
  return {0, highest}
end
if token > highest then
  redis.call('SET', KEYS[2], ARGV[1])
end
if #ARGV == 1 then
  return {1}
end
return {1, redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))}

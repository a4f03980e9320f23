-- The plain renewal of an exclusive grant that nobody waits behind. It has one key, so that it
-- also works while the slot of the key migrates.
-- KEYS: lock. ARGV: 'P' and the identity, TTL in ms.
-- Returns 1 done, 0 not held, -1 ask renew.lua.
local value = redis.call('LINDEX', KEYS[1], '0')
if not value then
  return 0
end
if string.sub(value, 1, 33) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return string.sub(value, 1, 1) == 'P' and 0 or -1

-- Renews an exclusive grant without waiters. With one key it also works while its slot migrates.
-- KEYS: lock. ARGV: 'P' and the identity, TTL in ms.
-- Returns 1 if it is done, 0 if it is not held, -1 if renew.lua has to decide.
local value = redis.call('LINDEX', KEYS[1], '0') or 'P'
if string.sub(value, 1, 33) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return string.sub(value, 1, 1) == 'P' and 0 or -1

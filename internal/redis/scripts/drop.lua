-- The plain way back: the caller holds the lock and nobody waits.
-- KEYS: lock. ARGV: the start of the record. Returns 1 done, 0 not held, -1 ask release.lua.
local start = redis.call('GETRANGE', KEYS[1], 0, 32)
if start == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return start == 'C' and -1 or 0

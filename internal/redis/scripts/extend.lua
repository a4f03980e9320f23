-- The plain renewal: the caller holds the lock and nobody waits.
-- KEYS: lock. ARGV: the start of the record, TTL in ms. Returns as drop.lua.
local start = redis.call('GETRANGE', KEYS[1], 0, 32)
if start == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return start == 'C' and -1 or 0

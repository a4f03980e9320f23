-- Renews an exclusive grant. With one key it also works while its slot migrates.
-- KEYS: lock. ARGV: identity, TTL in ms.
-- Returns 1 if it is done, 0 if it is not held, -1 if renew.lua has to decide.
local value = redis.call('LINDEX', KEYS[1], '0') or 'P'
if string.sub(value, 1, 33) == 'P' .. ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if string.sub(value, 1, 1) == 'P' then
  return 0
end
-- The other keys are for the waiters, so they need not live longer than before.
local x, b, ends, rest = string.match(value, '^S(%d+)\t(%d+)\t\t1\t1\t0\t0\t(%d+)\t(' .. ARGV[1] .. '\t.*)$')
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if not x or tonumber(ends) <= now then
  return -1
end
ends = now + ARGV[2]
x = math.max(tonumber(x), ends)
-- At maxmemory Redis does not stop a script whose first write needs no memory.
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', x))
redis.call('LSET', KEYS[1], '0', string.format('S%.0f\t%s\t\t1\t1\t0\t0\t%.0f\t%s', x, b, ends, rest))
return 1

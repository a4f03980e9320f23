-- The plain way to a lock: nobody holds it, nobody waits, the caller wants it alone.
-- KEYS: lock, counter. ARGV: record without its token, TTL in ms, number of tokens, the
-- server's clock in us as the caller knows it, how far tokens may be behind it.
-- Returns the last of the tokens, or what is in the way: its record and its time left.
local last = redis.call('INCRBY', KEYS[2], ARGV[3])
if last < ARGV[4] - ARGV[5] then
  if last < 1e15 then
    return false -- the counter was lost: acquire.lua asks the clock itself
  end
  last = ARGV[4] + ARGV[3]
  redis.call('SET', KEYS[2], string.format('%.0f', last))
end
if redis.call('SET', KEYS[1], ARGV[1] .. string.format('%.0f', last), 'NX', 'PX', ARGV[2]) then
  return last
end
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), last}

-- The plain way to a lock: nobody holds it, nobody waits, the caller wants it alone.
-- KEYS: lock, counter. ARGV: record without its token, TTL in ms, number of tokens.
-- Returns the last of the tokens, or what is in the way: its record and its time left.
local last = redis.call('INCRBY', KEYS[2], ARGV[3])
if last < 1e15 then
  return false -- the counter was lost: acquire.lua sets it by the clock
end
if redis.call('SET', KEYS[1], ARGV[1] .. string.format('%.0f', last), 'NX', 'PX', ARGV[2]) then
  return last
end
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), last}

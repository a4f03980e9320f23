-- The usual ways to give up a name that is held alone: nobody waits, or the first waiter
-- wants it alone too and is granted it. See state.lua for what is kept where, and for wake.
-- KEYS: as state.lua. ARGV: the command to publish with, the identity of the holder.
-- Returns 1 done, or nothing if release.lua has to see to it; nothing has changed then.
local LOCK, QUEUE, RECORDS, id = KEYS[1], KEYS[5], KEYS[3], ARGV[2]
local call = redis.call

local value = call('LINDEX', LOCK, '0')
if not value then
  return false
end
if string.sub(value, 1, 33) == 'P' .. id then
  call('DEL', LOCK)
  return 1
end
local q, z, d, x, of, ends = string.match(value, '^S(%d+) (%d+) (%d+) (%d+)\t(%x+)\t(%d+)\t')
if of ~= id then
  return false
end
local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
local now = math.floor(micro / 1000)
if now >= tonumber(ends) or now >= tonumber(d) then
  return false -- somebody's time is over
end
if q == '0' then
  call('DEL', LOCK)
  return 1
end

local field = call('ZRANGE', QUEUE, '0', '0')[1]
local channel, sent, unasked, who =
  string.match(call('HGET', RECORDS, field), '^1\t1\t0\t%d+\t([^\t]+)\t(%d+)\t([1-9]%d*)\t(.*)$')
local till = now + (unasked or 0)
if not channel or till > tonumber(x) then
  return false
end
local token = call('INCR', KEYS[2])
if token < micro - 200000 then -- as in take.lua
  token = micro
  call('SET', KEYS[2], string.format('%.0f', token))
end
if token > 9007199254740991 then
  return false -- release.lua knows what to do
end
local next = string.sub(field, 2)
local message = string.format('%s\t%s\t%.0f\t%d\t%s', next, sent, token, q - 1, LOCK)
if call(ARGV[1], channel, message) == 0 then
  return false -- nobody heard of it
end
call('HDEL', RECORDS, field)
call('ZREM', QUEUE, field)
call('ZREM', KEYS[6], field)
call('LSET', LOCK, '0', string.format('S%d %s %.0f %s\t%s\t%.0f\t%.0f\t%.0f\t1\t%s',
  q - 1, z, math.min(tonumber(d), till), x, next, till, now, token, who))
return 1

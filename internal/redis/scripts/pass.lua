-- The usual ways to give up a name that is held alone: nobody waits, or the first waiter
-- wants it alone too and is granted it. See state.lua for what is kept where, and for wake.
-- KEYS: as state.lua. ARGV: the command to publish with, the identity of the holder.
-- Returns 1 done, or nothing if release.lua has to see to it; nothing has changed then.
local LOCK, RECORDS, QUEUE, id = KEYS[1], KEYS[3], KEYS[5], ARGV[2]
local call, format = redis.call, string.format

local value = call('LINDEX', LOCK, '0')
if not value then
  return false
end
if string.sub(value, 1, 33) == 'P' .. id then
  call('DEL', LOCK)
  return 1
end
local x, of, ends = string.match(value, '^S(%d+)\t(%x+)\t(%d+)\t')
if of ~= id then
  return false
end
local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
if tonumber(format('%d', micro)) ~= micro then
  return false -- a server of 32 bits: %d, which is quicker than %.0f, cannot print these numbers
end
local now = math.floor(micro / 1000)
if now >= tonumber(ends) then
  return false -- it is over
end
local field = call('LINDEX', QUEUE, '0')
if not field then
  call('DEL', LOCK)
  return 1
end
local beat, channel, sent, unasked, who =
  string.match(call('HGET', RECORDS, field) or '', '^1\t1\t0\t%d+\t(%d+)\t([^\t]+)\t(%d+)\t([1-9]%d*)\t(.*)$')
if not beat or now >= tonumber(beat) or now + unasked > tonumber(x) then
  return false
end
local token = call('INCR', KEYS[2])
if token < micro - 200000 then -- as in take.lua
  token = micro
  call('SET', KEYS[2], format('%d', token))
end
if token > 9007199254740991 then
  return false -- release.lua knows what to do
end
local next = string.sub(field, 2)
local waiting = call('LLEN', QUEUE) - 1
if call(ARGV[1], channel, format('%s\t%s\t%d\t%d\t%s', next, sent, token, waiting, LOCK)) == 0 then
  return false -- nobody heard of it
end
call('HDEL', RECORDS, field)
call('LPOP', QUEUE)
call('LSET', LOCK, '0', format('S%s\t%s\t%d\t%d\t%d\t1\t%s', x, next, now + unasked, now, token, who))
return 1

-- The usual way to a name that others want too, alone as this one does: it is free, or there
-- is one exclusive holder, and the request goes to the end of the queue. See state.lua for
-- what is kept where.
-- KEYS: as state.lua. ARGV: id, TTL in ms, tokens, heartbeat in ms, owner and meta, and the
-- record of the waiter from its channel on.
-- Returns the same as acquire.lua, or nothing if that has to see to it; nothing has changed
-- then.
local LOCK, RECORDS, QUEUE, id, who = KEYS[1], KEYS[3], KEYS[5], ARGV[1], ARGV[5]
local call, format = redis.call, string.format

local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
if tonumber(format('%d', micro)) ~= micro then
  return false -- a server of 32 bits: %d, which is quicker than %.0f, cannot print these numbers
end
local now = math.floor(micro / 1000)

local value = call('LINDEX', LOCK, '0')
if not value then
  if ARGV[3] ~= '1' then
    return false
  end
  local token = call('INCR', KEYS[2])
  if token < micro - 200000 then -- as in take.lua
    token = micro
    call('SET', KEYS[2], format('%d', token))
  end
  if token > 9007199254740991 then
    return false -- acquire.lua knows what to do
  end
  call('RPUSH', LOCK, format('P%s\t%d\t1\t%s\t%d', id, now, who, token))
  call('PEXPIRE', LOCK, ARGV[2])
  return {'granted', micro, token, 1, 0}
end

local x, of, ends, since, token, tokens, holder =
  string.match(value, '^S(%d+)\t(%x+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(.*)$')
if not of then
  of, since, tokens, holder, token = string.match(value, '^P(%x+)\t(%d+)\t(%d+)\t([^\t]*\t[^\t]*)\t(%d+)$')
  ends, x = now + call('PTTL', LOCK), 0
end
ends, x = tonumber(ends), tonumber(x)
if not of or of == id or now >= ends then
  return false
end
local heartbeat = tonumber(ARGV[4])
local beat = now + heartbeat + 1
if call('HSETNX', RECORDS, 'w' .. id, format('1\t1\t0\t%d\t%d\t%s', now, beat, ARGV[6])) == 0 then
  return false -- it is in the queue
end
local place = call('RPUSH', QUEUE, 'w' .. id)
local last = math.max(beat, ends)
local longer = last > x
if longer then
  x = last + math.floor((last - now) / 4) -- not for everybody anew
  call('LSET', LOCK, '0', format('S%d\t%s\t%d\t%s\t%s\t%s\t%s', x, of, ends, since, token, tokens, holder))
  call('PEXPIREAT', LOCK, format('%d', x))
end
if longer or place == 1 then
  call('PEXPIREAT', RECORDS, format('%d', x))
  call('PEXPIREAT', QUEUE, format('%d', x))
end
return {'refused', micro, token + tokens - 1, place, place - 1,
  math.max(1, math.min(math.floor(heartbeat * 9 / 20), ends - now)),
  format('%s\t%d\t1\t1\t0\t0\t%s\t%s\t%s\t%s', of, ends, since, token, tokens, holder)}

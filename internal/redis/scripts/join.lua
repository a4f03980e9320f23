-- The usual way to a name that others want too, alone as this one does: it is free, or there
-- is one exclusive holder, and the request goes to the end of the queue. See state.lua for
-- what is kept where.
-- KEYS: as state.lua. ARGV: id, TTL in ms, tokens, heartbeat in ms, owner and meta, and the
-- record of the waiter from its channel on.
-- Returns the same as acquire.lua, or nothing if that has to see to it; nothing has changed
-- then.
local LOCK, id, who = KEYS[1], ARGV[1], ARGV[5]
local call = redis.call

local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
local now = math.floor(micro / 1000)

local value = call('LINDEX', LOCK, '0')
if not value then
  if ARGV[3] ~= '1' then
    return false
  end
  local token = call('INCR', KEYS[2])
  if token < micro - 200000 then -- as in take.lua
    token = micro
    call('SET', KEYS[2], string.format('%.0f', token))
  end
  if token > 9007199254740991 then
    return false -- acquire.lua knows what to do
  end
  call('RPUSH', LOCK, string.format('P%s\t%.0f\t1\t%s\t%.0f', id, now, who, token))
  call('PEXPIRE', LOCK, ARGV[2])
  return {'granted', micro, token, 1, 0}
end

local q, z, d, x, of, ends, since, token, tokens, holder
local kind = string.sub(value, 1, 1)
if kind == 'S' then
  q, z, d, x, of, ends, since, token, tokens, holder =
    string.match(value, '^S(%d+) (%d+) (%d+) (%d+)\t(%x+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(.*)$')
  q, z, d, x, ends = tonumber(q), tonumber(z), tonumber(d), tonumber(x), tonumber(ends)
elseif kind == 'P' then
  of, since, tokens, holder, token = string.match(value, '^P(%x+)\t(%d+)\t(%d+)\t([^\t]*\t[^\t]*)\t(%d+)$')
  ends = now + call('PTTL', LOCK)
  q, z, d, x = 0, 0, ends, 0
end
if not of or of == id or now >= ends or now >= d then
  return false
end
local field = 'w' .. id
if call('ZADD', KEYS[5], 'NX', string.format('%.0f', z + 1), field) == 0 then
  return false -- it is in the queue
end
local heartbeat = tonumber(ARGV[4])
local beat = now + heartbeat + 1
call('HSET', KEYS[3], field, string.format('1\t1\t0\t%.0f\t%s', now, ARGV[6]))
call('ZADD', KEYS[6], string.format('%.0f', beat), field)
local again = math.min(math.floor(heartbeat * 9 / 20), (q == 0 and ends or d) - now)
d = math.min(d, beat)
local last = math.max(beat, ends)
local longer = last > x
if longer then
  x = last + math.floor((last - now) / 4)
end
call('LSET', LOCK, '0', string.format('S%d %.0f %.0f %.0f\t%s\t%.0f\t%s\t%s\t%s\t%s',
  q + 1, z + 1, d, x, of, ends, since, token, tokens, holder))
if longer or q == 0 then
  local till = string.format('%.0f', x)
  call('PEXPIREAT', LOCK, till)
  call('PEXPIREAT', KEYS[3], till)
  call('PEXPIREAT', KEYS[5], till)
  call('PEXPIREAT', KEYS[6], till)
end
return {'refused', micro, token + tokens - 1, q + 1, q, math.max(again, 1),
  string.format('%s\t%.0f\t1\t1\t0\t0\t%s\t%s\t%s\t%s', of, ends, since, token, tokens, holder)}

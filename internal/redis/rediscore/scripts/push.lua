-- The first part of release.lua handles the usual cases without building the whole state: an
-- exclusive holder releases the name, and either there is no waiter, or the first waiter is
-- exclusive too and gets a pushed grant (see grant in state.lua).
-- ARGV: publish, id, 'release', 'leave' or 'break', the state to keep the name in, for how long in ms.
local ends, of = match(sole, '^1\t1\t0\t0\t(%d+)\t(%x+)\t')
if ARGV[4] == '0' and of == id and now < tonumber(ends) then
  local field = not plain and call('LINDEX', QUEUE, '0')
  if not field then
    call('DEL', LOCK)
    return 1
  end
  local beat, channel, sent, grant, tokens, owner, meta = match(call('HGET', RECORDS, field) or '',
    '^1\t1\t0\t%d+\t(%d+)\t([^\t]+)\t(%d+)\t([1-9]%d*)\t(%d+)\t([^\t]*)\t([^\t]*)$')
  if beat and now < tonumber(beat) then
    -- At maxmemory Redis does not stop a script whose first write frees memory.
    call('LPOP', QUEUE)
    local token, n = reserve(COUNTER, tonumber(tokens), 1, 0)
    if n > 0 then
      local next, last = string.sub(field, 2), now + grant
      call('HDEL', RECORDS, field)
      local least = math.max(last, b)
      local stale = x < least or x > keysEnd(least)
      x = stale and keysEnd(least) or x
      call('LSET', LOCK, '0', format('S%.0f\t%.0f\t\t1\t1\t0\t0\t%.0f\t%s\t%s\t%s\t%.0f\t%d\t%.0f', x, b, last, next, owner,
        meta, now, n, token))
      if stale then
        expireAt(x, LOCK, RECORDS, QUEUE)
      end
      call(ARGV[1], channel, format('%s\t%.0f\t%s\t%s\t%.0f\t%d\t%d\t%s', next, now, sent, grant, token, n, call('LLEN', QUEUE), LOCK))
      return 1
    end
    -- No tokens are left: when the waiter asks again, it gets the error and is queued again.
  end
end

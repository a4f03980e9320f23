-- The first part of release.lua handles the usual cases without building the whole state: an
-- exclusive holder releases the name, and either there is no waiter, or the first waiter is
-- exclusive too and gets a pushed grant (see grant in state.lua).
-- ARGV: publish, id, 'release', 'leave', 'break' or 'pass', the state to keep the name in, for how
-- long in ms; to pass also the note, the token of the holder, and the floor of the next token.
-- A pass is a release that takes place only if the first waiter gets the note with its grant. That
-- waiter must want one token, and have sent its last request before the holder was granted the
-- name. It returns 1 if it is done, 0 if it is not and nothing has changed, and -1 if the identity is
-- not the holder. 'leave' returns the note of the holder instead of 1 if there is one.
local passes = ARGV[3] == 'pass'
local ends, of, had, note = match(sole, '^1\t1\t0\t0\t(%d+)\t(%x+)\t[^\t]*\t[^\t]*\t%d+\t%d+\t(%d+)\t?([^\t]*)')
local done = ARGV[3] == 'leave' and note and note ~= '' and note or 1
if passes and (of ~= id or now >= tonumber(ends)) then
  return -1
end
if ARGV[4] == '0' and of == id and now < tonumber(ends) and (not passes or had == ARGV[7]) then
  local field = not plain and call('LINDEX', QUEUE, '0')
  if not field and not passes then
    call('DEL', LOCK)
    return done
  end
  local beat, channel, sent, grant, tokens, owner, meta, after = match(field and call('HGET', RECORDS, field) or '',
    '^1\t1\t0\t%d+\t(%d+)\t([^\t]+)\t(%d+)\t([1-9]%d*)\t(%d+)\t([^\t]*)\t([^\t]*)\t?(%d*)$')
  if beat and now < tonumber(beat) and (not passes or tokens == '1' and after ~= '' and after ~= had) then
    -- At maxmemory Redis does not stop a script whose first write frees memory.
    call('LPOP', QUEUE)
    local token, n = reserve(tonumber(tokens), 1, passes and tonumber(ARGV[8]) or 0)
    if n > 0 then
      note = passes and ARGV[6] or ''
      local next, last = string.sub(field, 2), now + grant
      call('HDEL', RECORDS, field)
      local least = math.max(last, b)
      local stale = x < least or x > keysEnd(least)
      x = stale and keysEnd(least) or x
      call('LSET', LOCK, '0', format('S%.0f\t%.0f\t\t1\t1\t0\t0\t%.0f\t%s\t%s\t%s\t%.0f\t%d\t%.0f%s', x, b, last, next, owner,
        meta, now, n, token, passes and '\t' .. note .. '\t' .. sent .. '\t' .. channel or ''))
      if stale then
        expireAt(x, LOCK, RECORDS, QUEUE)
      end
      call(ARGV[1], channel, format('%s\t%s\t%s\t%.0f\t%d\t%d\t%s\t%s', next, sent, grant, token, n, call('LLEN', QUEUE),
        note, LOCK))
      return done
    end
    if passes then
      call('RPUSH', QUEUE, field)
      expireAt(x, QUEUE)
    end
    -- No tokens are left: when the waiter asks again, it gets the error and is queued again.
  end
end
if passes then
  return 0
end

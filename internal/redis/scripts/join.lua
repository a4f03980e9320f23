-- The first part of acquire.lua sees to the usual cases without building the whole state: an
-- exclusive request finds the name free, or held by one exclusive holder, and joins the queue.
-- ARGV: publish, id, mode, weight, limit, TTL in ms, tokens, floor, queue ('1') or not,
-- heartbeat in ms, owner and meta, channel to tokens of the waiter's record, how many holders
-- to name.
local tokens, floor, heartbeat, who = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[10]), ARGV[11]

if ARGV[3] == '1' and not value then
  local token, n = reserve(tokens, 1, floor)
  if n > 0 then
    call('RPUSH', LOCK, format('P%s\t%s\t%.0f\t%d\t%.0f', id, who, now, n, token))
    call('PEXPIRE', LOCK, ARGV[6])
  end
  return {'granted', micro, token, n, 0}
end

local ends, of = match(sole, '^1\t1\t0\t0\t(%d+)\t(%x+)')
if ARGV[3] == '1' and ARGV[9] == '1' and of and of ~= id and now < tonumber(ends) then
  local beat = now + heartbeat + 1
  local record = format('1\t1\t0\t%.0f\t%.0f\t%s\t%s', now, beat, ARGV[12], who)
  if call('HSETNX', RECORDS, 'w' .. id, record) == 1 then
    local place = call('RPUSH', QUEUE, 'w' .. id)
    ends = tonumber(ends)
    if beat > b or ends > x then
      b = keysEnd(beat)
      x = keysEnd(math.max(b, ends))
      call('LSET', LOCK, '0', format('S%.0f\t%.0f\t\t%s', x, b, sole))
      call('PEXPIREAT', LOCK, format('%.0f', x))
      call('PEXPIREAT', RECORDS, format('%.0f', x))
      call('PEXPIREAT', QUEUE, format('%.0f', x))
    elseif place == 1 then
      call('PEXPIREAT', RECORDS, format('%.0f', x))
      call('PEXPIREAT', QUEUE, format('%.0f', x))
    end
    local again = math.min(math.floor(heartbeat * 9 / 20), ends - now)
    return {'refused', micro, place, place - 1, again, sole}
  end
end

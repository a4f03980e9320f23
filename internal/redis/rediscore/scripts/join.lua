-- The first part of acquire.lua handles the usual case without building the whole state: an exclusive request
-- finds the name held by one exclusive holder, and joins the queue.
-- ARGV: publish, id, mode, weight, limit, TTL in ms, tokens, floor, '1' to queue, heartbeat in ms, owner and
-- meta, the fields channel to tokens of the waiter's record, how many holders to list.
local tokens, floor, heartbeat, who = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[10]), ARGV[11]

local ends, of = match(sole, '^1\t1\t0\t0\t(%d+)\t(%x+)\t')
if ARGV[3] == '1' and ARGV[9] == '1' and of and of ~= id and now < tonumber(ends) then
  local beat = now + heartbeat + 1
  if call('HEXISTS', RECORDS, 'w' .. id) == 0 then
    call('HSET', RECORDS, 'w' .. id, format('1\t1\t0\t%.0f\t%.0f\t%s\t%s', now, beat, ARGV[12], who))
    local place = call('RPUSH', QUEUE, 'w' .. id)
    ends = tonumber(ends)
    if beat > b or ends > x then
      b = keysEnd(beat)
      x = keysEnd(math.max(b, ends))
      call('LSET', LOCK, '0', format('S%.0f\t%.0f\t\t%s', x, b, sole))
      expireAt(x, LOCK, RECORDS, QUEUE)
    elseif place == 1 then
      expireAt(x, RECORDS, QUEUE)
    end
    return {'refused', micro, place, place - 1, math.min(math.floor(heartbeat * 9 / 20), ends - now), sole}
  end
end

-- One attempt to take a name, in any mode.
-- ARGV: publish, id, mode, weight, limit, TTL in ms, tokens, floor, queue or not, heartbeat
-- in ms, channel, owner, meta, how many holders to name, when this was sent and for how long
-- it may be granted unasked (see state.lua).
-- Returns {'granted', time in us, token, tokens, waiters},
--         {'refused', time in us, highest token, place, waiters, ask again in ms, holders…},
--         {'claim', mode, weight, limit} if the identity asked for that before, or
--         {'mix', mode, limit} if the name is in use like that.
local mode, weight, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local ttl, tokens, floor = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local queue, heartbeat, channel = ARGV[9] == '1', tonumber(ARGV[10]), ARGV[11]
local owner, meta, most = ARGV[12], ARGV[13], tonumber(ARGV[14])
local field = 'w' .. id

local function same(claim)
  return claim.mode == mode and (mode ~= PERMITS or claim.weight == weight and claim.limit == limit)
end

-- unfit is the answer to a request that makes no sense. It leaves nothing queued.
local function unfit(answer, waits)
  if waits then
    dropWaiter(id)
  end
  finish()
  return answer
end

expire()
local h = holder(id)
local w = waiting > 0 and waiter(field) or nil
if h and h.state == HELD then
  if not same(h) then
    return unfit({'claim', h.mode, h.weight, h.limit}, w)
  end
  if not many then
    call('PEXPIRE', LOCK, ARGV[6])
  elseif sole then
    h.owner, h.meta = owner, meta -- it may have been granted unasked, to another caller
    soleEnds = now + ttl
    lasts(soleEnds)
  else
    call('ZADD', ENDS, text(now + ttl), 'h' .. id)
    lasts(now + ttl)
  end
  finish()
  return {'granted', micro, h.token, h.tokens, waiting}
end
if w and not same(w) then
  return unfit({'claim', w.mode, w.weight, w.limit}, w)
end
if use.n > 0 and mode ~= EXCLUSIVE and (use.m ~= mode or use.l ~= limit) then
  return unfit({'mix', use.m, use.l}, w)
end

-- A kept record of this identity is a grant that ended: it must not come back to life
-- beside its own record.
local fits = not h and admits(mode, weight, limit)
if fits and (not frontField or frontField == field) then
  local token, n = reserve(tokens, floor)
  local grant = {mode = mode, weight = weight, limit = limit, state = HELD, since = now,
    token = token, tokens = n, owner = owner, meta = meta}
  if w then
    dropWaiter(id)
  end
  if mode == EXCLUSIVE and waiting == 0 then
    plain(id, grant, ARGV[6])
  else
    put(id, grant, now + ttl)
    freed = freed and mode ~= EXCLUSIVE -- who has it alone lets nobody in
    finish()
  end
  return {'granted', micro, token, n, waiting}
end

-- Refused.
local place, waiters = 0, waiting
if queue then
  crowd()
  local joined = w and w.joined or text(now)
  local beat = now + heartbeat + 1
  call('HSET', RECORDS, field, table.concat({ARGV[3], ARGV[4], ARGV[5], joined, text(beat), channel, ARGV[15], ARGV[16],
    owner, meta}, '\t'))
  lasts(beat)
  local before = w and call('LPOS', QUEUE, field)
  if before then
    place = before + 1
  else
    fresh = fresh or waiting == 0
    waiting = call('RPUSH', QUEUE, field)
    place = waiting
  end
  waiters = waiting - 1
elseif w then
  dropWaiter(id)
  waiters = waiting
end

-- Several times in a heartbeat; earlier if somebody in front ends or may be dead then.
local again = math.floor(heartbeat * 9 / 20)
if place <= 1 then
  local ends = soleEnds or use.n > 0 and tonumber(call('ZRANGE', ENDS, '0', '0', 'WITHSCORES')[2])
  again = ends and math.min(again, ends - now) or again
end
local _, ahead = first()
if place ~= 1 and ahead then
  again = math.min(again, ahead.beat - now)
end
local answer = {'refused', micro, tonumber(call('GET', COUNTER) or 0), place, waiters, math.max(again, 1)}
if not fits and sole then
  answer[7] = show(soleID, text(soleEnds), pack(sole))
elseif not fits then
  local ends = call('ZRANGE', ENDS, 0, most - 1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    answer[#answer + 1] = show(string.sub(ends[i], 2), ends[i + 1], call('HGET', RECORDS, ends[i]))
  end
end
finish()
return answer

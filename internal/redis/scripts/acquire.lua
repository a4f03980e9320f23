-- One attempt to take a name, in any mode.
-- ARGV: publish, id, mode, weight, limit, TTL in ms, tokens, floor, queue or not, heartbeat
-- in ms, channel, owner, meta, how many holders to name.
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
local w = many and unpackWaiter(call('HGET', RECORDS, field)) or nil
if h and h.state == HELD then
  if not same(h) then
    return unfit({'claim', h.mode, h.weight, h.limit}, w)
  end
  if sole then
    call('PEXPIRE', LOCK, ttl)
  else
    call('ZADD', ENDS, text(now + ttl), 'h' .. id)
  end
  finish()
  return {'granted', micro, h.token, h.tokens, many and call('ZCARD', QUEUE) or 0}
end
if w and not same(w) then
  return unfit({'claim', w.mode, w.weight, w.limit}, w)
end
if use.n > 0 and mode ~= EXCLUSIVE and use.m ~= EXCLUSIVE and (use.m ~= mode or use.l ~= limit) then
  return unfit({'mix', use.m, use.l}, w)
end

-- A kept record of this identity is a grant that ended: it must not come back to life
-- beside its own record.
local fits = not h and admits(mode, weight, limit)
local front = first()
if fits and (not front or front == field) then
  local token, n = reserve(tokens, floor)
  local grant = {mode = mode, weight = weight, limit = limit, state = HELD, since = now,
    token = token, tokens = n, owner = owner, meta = meta}
  if w then
    dropWaiter(id)
  end
  if mode == EXCLUSIVE and (not many or call('ZCARD', QUEUE) == 0) then
    if many then -- nobody waits any more
      call('DEL', RECORDS, ENDS, QUEUE, BEATS)
    end
    call('SET', LOCK, packPlain(id, grant), 'PX', ttl)
    return {'granted', micro, token, n, 0}
  end
  crowd()
  put(id, grant, now + ttl)
  count(grant, 1)
  finish()
  return {'granted', micro, token, n, call('ZCARD', QUEUE)}
end

-- Refused.
local place, waiters = 0, 0
if queue then
  crowd()
  local joined, seq = text(now), nil
  if w then
    joined = w.joined
  else
    seq = tonumber(call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0) + 1
    call('ZADD', QUEUE, text(seq), field)
  end
  call('HSET', RECORDS, field, table.concat({ARGV[3], ARGV[4], ARGV[5], joined, channel, owner, meta}, '\t'))
  call('ZADD', BEATS, text(now + heartbeat + 1), field)
  place = call('ZRANK', QUEUE, field) + 1
  waiters = call('ZCARD', QUEUE) - 1
elseif many then
  if w then
    dropWaiter(id)
  end
  waiters = call('ZCARD', QUEUE)
end

-- Several times in a heartbeat; earlier if somebody in front ends or may be dead then.
local again = math.floor(heartbeat * 9 / 20)
if many then
  local beat = call('ZRANGE', BEATS, 0, 0, 'WITHSCORES')[2]
  if place ~= 1 and beat then
    again = math.min(again, tonumber(beat) - now)
  end
  local ends = call('ZRANGE', ENDS, 0, 0, 'WITHSCORES')[2]
  if place <= 1 and ends then
    again = math.min(again, tonumber(ends) - now)
  end
else
  again = math.min(again, call('PTTL', LOCK))
end
local answer = {'refused', micro, tonumber(call('GET', COUNTER) or 0), place, waiters, math.max(again, 1)}
if not fits then
  if sole then
    answer[#answer + 1] = table.concat({soleID, text(now + call('PTTL', LOCK)), pack(sole)}, '\t')
  else
    local ends = call('ZRANGE', ENDS, 0, most - 1, 'WITHSCORES')
    for i = 1, #ends, 2 do
      answer[#answer + 1] = table.concat({string.sub(ends[i], 2), ends[i + 1], call('HGET', RECORDS, ends[i])}, '\t')
    end
  end
end
finish()
return answer

-- One attempt to take a name, in any mode. See join.lua for ARGV.
-- Returns {'granted', time in µs, token, tokens, waiters},
--         {'refused', time in µs, place, waiters, ask again in ms, holders…},
--         {'claim', mode, weight, limit} if the identity asked for that before, or
--         {'mix', mode, limit} if the name is in use like that.
local mode, weight, limit, ttl = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local owner, meta = match(who, '^([^\t]*)\t([^\t]*)$')
local field = 'w' .. id

local function same(claim)
  return claim.mode == mode and (mode ~= PERMITS or claim.weight == weight and claim.limit == limit)
end

-- unfit answers a request that makes no sense. It leaves nothing queued.
local function unfit(answer, waits)
  if waits then
    dropWaiter(field)
  end
  finish()
  return answer
end

expire()
local h = holder(id)
local w = waiting > 0 and readWaiter(field)
if h and h.state == HELD then
  if not same(h) then
    return unfit({'claim', h.mode, h.weight, h.limit}, w)
  end
  evenIfFull()
  -- It may have been granted without asking, to another caller with that identity.
  h.owner, h.meta, h.ends = owner, meta, now + ttl
  -- The record changes with every call, so that an earlier call of this identity, whose reply
  -- comes after its caller gave up, does not remove it: see undo in plain.go.
  h.since = h.since + 1
  if h ~= sole then
    count(h, -1)
  end
  put(h)
  finish()
  return {'granted', micro, h.token, h.tokens, waiting}
end
if w and not same(w) then
  return unfit({'claim', w.mode, w.weight, w.limit}, w)
end
if use.n > 0 and mode ~= EXCLUSIVE and (use.m ~= mode or use.l ~= limit) then
  return unfit({'mix', use.m, use.l}, w)
end

-- A closed record of this identity is a grant that ended: it must not come back to life beside
-- its own record.
local fits = not h and admits(mode, weight, limit)
if fits and (not front or front.field == field) then
  local token, n = reserve(tokens, 1, floor)
  if w then
    dropWaiter(field)
  end
  if n > 0 then
    put({mode = mode, weight = weight, limit = limit, state = HELD, ends = now + ttl, id = id, owner = owner, meta = meta,
      since = now, tokens = n, token = token})
    freed = freed and mode ~= EXCLUSIVE -- an exclusive holder lets nobody in
  end
  finish()
  return {'granted', micro, token, n, waiting}
end

-- Refused.
local place, others = 0, waiting
if ARGV[9] == '1' then
  local beat = now + heartbeat + 1
  if beat > b then
    b = keysEnd(beat)
  end
  call('HSET', RECORDS, field, format('%d\t%.0f\t%.0f\t%s\t%.0f\t%s\t%s', mode, weight, limit, w and w.joined or text(now),
    beat, ARGV[12], who))
  place = w and call('LPOS', QUEUE, field) or -1
  if place < 0 then
    waiting = call('RPUSH', QUEUE, field)
    place = waiting - 1
  else
    -- Dead waiters behind the first are found by those beside them, some at a time.
    local least = waiting - 100
    while place > 1 and waiting > least and not alive(place - 1) do
      place = place - 1
    end
    while place + 1 < waiting and waiting > least and not alive(place + 1) do
    end
  end
  place, others = place + 1, waiting - 1
elseif w then
  dropWaiter(field)
  others = waiting
end

-- Several times in a heartbeat; earlier if a holder ends, or a waiter in front may be dead then.
local again = math.floor(heartbeat * 9 / 20)
if place <= 1 then
  local ends = sole and sole.ends or use.n > 0 and tonumber(call('ZRANGE', ENDS, '0', '0', 'WITHSCORES')[2])
  again = ends and math.min(again, ends - now) or again
end
local ahead = first()
if place ~= 1 and ahead then
  again = math.min(again, ahead.beat - now)
end
local answer = {'refused', micro, place, others, math.max(again, 1)}
if sole then
  answer[6] = record(sole)
elseif not fits then
  for _, of in ipairs(call('ZRANGE', ENDS, 0, ARGV[13] - 1)) do
    answer[#answer + 1] = call('HGET', RECORDS, of)
  end
end
finish()
return answer

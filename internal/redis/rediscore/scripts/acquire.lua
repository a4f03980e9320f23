-- One attempt to take a name, in any mode. See join.lua for ARGV.
-- Returns {'granted', time in µs, token, tokens, waiters},
--         {'refused', time in µs, place, waiters, ask again in ms, holders…},
--         {'claim', mode, weight, limit} if the identity made a different request before, or
--         {'mix', mode, limit} if the name is in use in another way.
local mode, weight, limit, ttl = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local owner, meta = match(who, '^([^\t]*)\t([^\t]*)$')
local field = 'w' .. id

local function same(claim)
  return claim.mode == mode and (mode ~= PERMITS or claim.weight == weight and claim.limit == limit)
end

expire()
local h = holder(id)
local w = waiting > 0 and readWaiter(field)
if h or w then
  evenIfFull()
end

-- invalid leaves nothing queued.
local function invalid(reply)
  if w then
    dropWaiter(field)
  end
  return finish(reply)
end

if h and h.state == HELD then
  if not same(h) then
    return invalid({'claim', h.mode, h.weight, h.limit})
  end
  -- The grant may have been pushed to another call with this identity.
  h.owner, h.meta, h.ends = owner, meta, now + ttl
  if h ~= sole then
    count(h, -1)
  end
  put(h)
  finish()
  return {'granted', micro, h.token, h.tokens, waiting}
end
if w and not same(w) then
  return invalid({'claim', w.mode, w.weight, w.limit})
end
if use.n > 0 and mode ~= EXCLUSIVE and (use.m ~= mode or use.l ~= limit) then
  return invalid({'mix', use.m, use.l})
end

-- A closed record of this identity is a grant that was released. Until it ends, the identity gets no other.
local fits = not h and admits(mode, weight, limit)
if fits and (not front or front.field == field) then
  local token, n = reserve(COUNTER, tokens, 1, floor)
  if w then
    dropWaiter(field)
  end
  if n > 0 then
    put({mode = mode, weight = weight, limit = limit, state = HELD, ends = now + ttl, id = id, owner = owner, meta = meta,
      since = now, tokens = n, token = token})
    freed = freed and mode ~= EXCLUSIVE -- an exclusive holder admits no other holder
  end
  finish()
  return {'granted', micro, token, n, waiting}
end

-- Refused.
local place = 0
if ARGV[9] == '1' then
  local beat = now + heartbeat + 1
  if beat > b then
    b = keysEnd(beat)
  end
  call('HSET', RECORDS, field, format('%d\t%.0f\t%.0f\t%s\t%.0f\t%s\t%s', mode, weight, limit, w and w.joined or decimal(now),
    beat, ARGV[12], who))
  place = w and call('LPOS', QUEUE, field) or -1
  if place < 0 then
    waiting = call('RPUSH', QUEUE, field)
    place = waiting - 1
    if waiting == 1 then
      x = 0 -- the keys are new, so write must set their TTL
    end
  else
    -- Each waiter that asks removes dead waiters next to it, at most 100 at a time.
    local least = waiting - 100
    while place > 1 and waiting > least and not alive(place - 1) do
      place = place - 1
    end
    while place + 1 < waiting and waiting > least and not alive(place + 1) do
    end
  end
  place = place + 1
elseif w then
  dropWaiter(field)
end

-- A waiter should ask again twice per heartbeat, or when a holder expires or a waiter in front may be dead.
local again = math.floor(heartbeat * 9 / 20)
if place <= 1 then
  local ends = sole and sole.ends or use.n > 0 and tonumber(call('ZRANGE', ENDS, '0', '0', 'WITHSCORES')[2])
  again = ends and math.min(again, ends - now) or again
end
local ahead = first()
if place ~= 1 and ahead then
  again = math.min(again, ahead.beat - now)
end
local reply = {'refused', micro, place, place > 0 and waiting - 1 or waiting, math.max(again, 1)}
if sole then
  reply[6] = record(sole)
elseif not fits then
  for _, of in ipairs(call('ZRANGE', ENDS, 0, ARGV[13] - 1)) do
    reply[#reply + 1] = call('HGET', RECORDS, of)
  end
end
return finish(reply)

-- The whole state of a name, for the cases that the shorter scripts do not handle.
local EXCLUSIVE, SHARED, PERMITS = 1, 2, 3
local HELD, DONE = 0, 1

-- Lua itself prints no more than 14 digits.
local function decimal(n)
  return format('%.0f', n)
end

local function readHolder(record)
  local mode, weight, limit, state, ends, of, owner, meta, since, tokens, token = match(record or '',
    '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%x+)\t([^\t]*)\t([^\t]*)\t(%d+)\t(%d+)\t(%d+)$')
  return mode and {mode = tonumber(mode), weight = tonumber(weight), limit = tonumber(limit), state = tonumber(state),
    ends = tonumber(ends), id = of, owner = owner, meta = meta, since = tonumber(since), tokens = tonumber(tokens),
    token = tonumber(token)}
end

local function record(h)
  return format('%d\t%.0f\t%.0f\t%d\t%.0f\t%s\t%s\t%s\t%.0f\t%d\t%.0f', h.mode, h.weight, h.limit, h.state, h.ends,
    h.id, h.owner, h.meta, h.since, h.tokens, h.token)
end

local function readWaiter(field)
  local mode, weight, limit, joined, beat, channel, sent, grant, tokens, owner, meta = match(call('HGET', RECORDS, field) or '',
    '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t([^\t]*)\t(%d+)\t(%d+)\t(%d+)\t([^\t]*)\t([^\t]*)$')
  return mode and {field = field, mode = tonumber(mode), weight = tonumber(weight), limit = tonumber(limit),
    joined = joined, beat = tonumber(beat), channel = channel, sent = sent, grant = tonumber(grant),
    tokens = tonumber(tokens), owner = owner, meta = meta}
end

sole = readHolder(sole)
local n, m, s, l, k = match(use, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
use = {n = tonumber(n) or 0, m = tonumber(m) or 0, s = tonumber(s) or 0, l = tonumber(l) or 0, k = tonumber(k) or 0}
local waiting = value and not plain and call('LLEN', QUEUE) or 0
local freed = false -- the first waiter may be granted now
local front         -- the first waiter, after first has found it
local messages = {} -- to publish

-- count adds a holder that is not exclusive to use, or subtracts it.
local function count(h, sign)
  use.n = use.n + sign
  use.s = use.s + sign * h.weight
  use.k = use.k + (h.state ~= HELD and sign or 0)
  if use.n == 0 then
    use.l = 0
  elseif sign > 0 then
    use.m, use.l = h.mode, math.max(use.l, h.limit)
  end
end

local function holder(of)
  if sole then
    return of == sole.id and sole or nil
  end
  return use.n > 0 and readHolder(call('HGET', RECORDS, 'h' .. of)) or nil
end

-- put writes a holder. If the holder existed before, it must have been subtracted from use.
local function put(h)
  if h.mode == EXCLUSIVE then
    sole = h
    return
  end
  call('HSET', RECORDS, 'h' .. h.id, record(h))
  call('ZADD', ENDS, decimal(h.ends), 'h' .. h.id)
  count(h, 1)
end

local function drop(h)
  freed = true
  if h == sole then
    sole = nil
    return
  end
  call('HDEL', RECORDS, 'h' .. h.id)
  call('ZREM', ENDS, 'h' .. h.id)
  count(h, -1)
  if use.n == 0 then
    x = 0 -- if keys are made again, write must set their TTL
  end
end

local function dropWaiter(field)
  call('HDEL', RECORDS, field)
  call('LREM', QUEUE, '1', field)
  waiting = waiting - 1
  freed = true
  if front and front.field == field then
    front = nil
  end
end

-- publish tells a waiter to ask again, or sends it its grant, after the state was written: without the right
-- to publish the script ends there.
local function publish(w, granted)
  if w.channel ~= '' then
    messages[#messages + 1] = {w.channel, string.sub(w.field, 2) .. '\t' .. decimal(now) .. '\t' .. (granted or '') .. LOCK}
  end
end

-- alive returns the waiter at a place of the queue, from 0. It removes a dead waiter, but wakes it, because it
-- may only be late.
local function alive(place)
  local field = call('LINDEX', QUEUE, place)
  local w = readWaiter(field)
  if w and w.beat > now then
    return w
  end
  if w then
    publish(w)
  end
  dropWaiter(field)
end

-- first finds the first waiter that is alive.
local function first()
  while waiting > 0 and not front do
    front = alive(0)
  end
  return front
end

-- expire removes expired holders, and dead waiters at the front of the queue.
local function expire()
  if sole and sole.ends <= now then
    drop(sole)
  end
  for _, field in ipairs(use.n > 0 and call('ZRANGEBYSCORE', ENDS, '-inf', decimal(now)) or {}) do
    drop(readHolder(call('HGET', RECORDS, field)))
  end
  first()
end

local function admits(mode, weight, limit)
  return not sole and (use.n == 0 or use.m == mode and (mode == SHARED or mode == PERMITS and use.s + weight <= limit))
end

-- grant gives the name to the first waiter, which saves it a round trip. It has the TTL and the tokens that
-- the waiter requested, but lasts no longer than the waiter's heartbeat, because the waiter may be dead. The
-- message contains the time at which the waiter sent its request, because the waiter counts the TTL from
-- then.
local function grant(w)
  local token, tokens = reserve(COUNTER, w.tokens, 1, 0)
  if tokens < 1 then
    publish(w) -- the waiter gets the error when it asks again
    return
  end
  dropWaiter(w.field)
  sole = {mode = EXCLUSIVE, weight = 1, limit = 0, state = HELD, ends = now + w.grant, id = string.sub(w.field, 2),
    owner = w.owner, meta = w.meta, since = now, tokens = tokens, token = token}
  publish(w, format('%s\t%.0f\t%.0f\t%d\t%d\t', w.sent, w.grant, token, tokens, waiting))
end

-- wake grants the name to the first waiter or tells it to ask again, if its request fits. It also wakes the
-- first waiter of a name that was closed, which may then give up, which wakes the next one.
local function wake()
  local w = first()
  if not w or w.field == 'w' .. id then
    return -- the caller gets a reply
  end
  local fits = admits(w.mode, w.weight, w.limit)
  if fits and w.grant > 0 then
    grant(w)
  elseif fits or use.k > 0 or sole and sole.state ~= HELD then
    publish(w)
  end
end

local function write()
  if not sole and use.n == 0 and waiting == 0 then
    call('DEL', LOCK, RECORDS, ENDS, QUEUE)
    return
  end
  local state, ends
  if sole and sole.state == HELD and waiting == 0 then
    ends = sole.ends
    state = format('P%s\t%s\t%s\t%.0f\t%d\t%.0f', sole.id, sole.owner, sole.meta, sole.since, sole.tokens, sole.token)
  else
    b = waiting > 0 and b or 0
    local last = use.n > 0 and tonumber(call('ZRANGE', ENDS, '-1', '-1', 'WITHSCORES')[2]) or 0
    ends = math.max(b, last, sole and sole.ends or 0)
    ends = x >= ends and x <= keysEnd(ends) and x or keysEnd(ends)
    state = format('S%.0f\t%.0f\t%s\t%s', ends, b,
      use.n > 0 and format('%d %d %.0f %.0f %d', use.n, use.m, use.s, use.l, use.k) or '', sole and record(sole) or '')
  end
  if state ~= value or ends ~= x then
    if value then
      call('LSET', LOCK, '0', state)
    else
      call('RPUSH', LOCK, state)
    end
    expireAt(ends, LOCK, RECORDS, ENDS, QUEUE)
  end
end

-- finish wakes the first waiter if necessary, writes the state, and returns the reply.
local function finish(reply)
  if freed then
    wake()
  end
  write()
  for _, message in ipairs(messages) do
    call(ARGV[1], message[1], message[2])
  end
  return reply
end

-- evenIfFull lets the script continue at maxmemory: Redis does not stop one whose first write needs no memory.
local function evenIfFull()
  call('HDEL', RECORDS, '')
end

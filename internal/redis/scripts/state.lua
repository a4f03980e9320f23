-- The whole state of a name. This part stands in front of acquire, release, renew and show.
--
-- lock     a list of one element, so that whoever holds it alone can take it back with LREM:
--          'P' and a record: one exclusive holder; the key lives as long as its grant;
--          'S' and a summary: one exclusive holder, in the summary, and waiters;
--          'C' and a summary: anything else. A closed exclusive grant is in the summary.
-- counter  the last token given, for all names of this server or slot
-- records  h<id> -> a holder that is not exclusive, w<id> -> a waiter
-- ends     h<id> by when it ends, in ms
-- queue    w<id> in order. A dead one is taken out when it is the first.
--
-- ARGV[1] is the command to publish with, ARGV[2] the identity of the caller.
local LOCK, COUNTER, RECORDS, ENDS, QUEUE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id = ARGV[2]
local call = redis.call

local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
local now = math.floor(micro / 1000)

local EXCLUSIVE, SHARED, PERMITS = 1, 2, 3
local HELD, DONE = 0, 1
local LAST_TOKEN = 9007199254740991
local LEAD = 4096 -- in us, which is also how many tokens: not below maxBlock of store.go

-- Lua would print no more than 14 digits.
local function text(n)
  return string.format('%.0f', n)
end

-- A holder: mode, weight, limit, state, since, token, tokens, owner, meta.
local HOLDER = '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t([^\t]*)\t([^\t]*)$'

local function pack(h)
  return table.concat({text(h.mode), text(h.weight), text(h.limit), text(h.state), text(h.since),
    text(h.token), text(h.tokens), h.owner, h.meta}, '\t')
end

local function unpackHolder(record)
  if not record then
    return nil
  end
  local mode, weight, limit, state, since, token, tokens, owner, meta = string.match(record, HOLDER)
  return {mode = tonumber(mode), weight = tonumber(weight), limit = tonumber(limit), state = tonumber(state),
    since = tonumber(since), token = tonumber(token), tokens = tonumber(tokens), owner = owner, meta = meta}
end

-- A waiter: mode, weight, limit, joined, when it is taken for dead, channel, when its client
-- sent the last request by the client's own clock, for how long it may be granted unasked (0
-- is never), owner, meta.
local WAITER = '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t([^\t]*)\t(%d+)\t(%d+)\t([^\t]*)\t([^\t]*)$'

local function waiter(field)
  local mode, weight, limit, joined, beat, channel, sent, unasked, owner, meta =
    string.match(call('HGET', RECORDS, field) or '', WAITER)
  return mode and {mode = tonumber(mode), weight = tonumber(weight), limit = tonumber(limit), joined = joined,
    beat = tonumber(beat), channel = channel, sent = sent, unasked = tonumber(unasked), owner = owner, meta = meta}
end

-- What is there. Sole is the exclusive holder; use sums up the others: n their number, m
-- mode, s sum of weights, l limit, k how many are kept closed; x is when the keys end.
local value = call('LINDEX', LOCK, '0')
local kind = value and string.sub(value, 1, 1)
local many = kind == 'C' or kind == 'S'
local use = {n = 0, m = 0, s = 0, l = 0, k = 0, x = 0}
local waiting = many and call('LLEN', QUEUE) or 0
local front, frontField -- the first waiter, as found by expire
local sole, soleID, soleEnds
local freed = false  -- the first waiter's chances may have changed
local fresh = false  -- a key was made, or all end later than before

if kind == 'S' then
  local x, of, ends, since, token, tokens, owner, meta =
    string.match(value, '^S(%d+)\t(%x+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t([^\t]*)\t([^\t]*)$')
  use.x, soleID, soleEnds = tonumber(x), of, tonumber(ends)
  sole = {mode = EXCLUSIVE, weight = 1, limit = 0, state = HELD, since = tonumber(since),
    token = tonumber(token), tokens = tonumber(tokens), owner = owner, meta = meta}
elseif kind == 'C' then
  local n, m, s, l, k, x, of, ends, record =
    string.match(value, '^C(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)\t(%x*)\t(%d*)\t(.*)$')
  use = {n = tonumber(n), m = tonumber(m), s = tonumber(s), l = tonumber(l), k = tonumber(k), x = tonumber(x)}
  if of ~= '' then
    soleID, soleEnds, sole = of, tonumber(ends), unpackHolder(record)
  end
elseif value then
  local of, since, tokens, owner, meta, token = string.match(value, '^P(%x+)\t(%d+)\t(%d+)\t([^\t]*)\t([^\t]*)\t(%d+)$')
  if not of then
    return redis.error_reply('WRONGTYPE the key ' .. LOCK .. ' is not a lock of Holdfast')
  end
  soleID, soleEnds = of, now + call('PTTL', LOCK)
  sole = {mode = EXCLUSIVE, weight = 1, limit = 0, state = HELD, since = tonumber(since),
    token = tonumber(token), tokens = tonumber(tokens), owner = owner, meta = meta}
end

-- lasts notes that something lasts until then.
local function lasts(ends)
  if ends > use.x then
    use.x = ends + math.floor((ends - now) / 4) -- not for every grant anew
    fresh = true
  end
end

-- crowd goes over from one holder to the whole.
local function crowd()
  if not many then
    many = true
    if sole then
      lasts(soleEnds)
    end
  end
end

local function kept()
  return use.k > 0 or sole and sole.state ~= HELD
end

local function admits(mode, weight, limit)
  if sole then
    return false
  end
  if use.n == 0 then
    return true
  end
  if use.m ~= mode or mode == EXCLUSIVE then
    return false
  end
  return mode == SHARED or use.s + weight <= limit
end

local function holder(of)
  if sole then
    return of == soleID and sole or nil
  end
  return use.n > 0 and unpackHolder(call('HGET', RECORDS, 'h' .. of)) or nil
end

local function count(h, sign)
  use.n = use.n + sign
  use.s = use.s + sign * h.weight
  if h.state ~= HELD then
    use.k = use.k + sign
  end
  if use.n == 0 then
    use.l = 0
  elseif sign > 0 then
    use.m, use.l = h.mode, math.max(use.l, h.limit)
  end
end

-- put adds a holder, or changes one that was taken out with count.
local function put(of, h, ends)
  crowd()
  lasts(ends)
  if h.mode == EXCLUSIVE then
    sole, soleID, soleEnds = h, of, ends
    return
  end
  fresh = fresh or use.n == 0
  call('HSET', RECORDS, 'h' .. of, pack(h))
  call('ZADD', ENDS, text(ends), 'h' .. of)
  count(h, 1)
end

local function dropHolder(of, h)
  freed = true
  if sole then
    sole, soleID, soleEnds = nil, nil, nil
    return
  end
  call('HDEL', RECORDS, 'h' .. of)
  call('ZREM', ENDS, 'h' .. of)
  count(h, -1)
end

local function dropWaiter(of)
  call('HDEL', RECORDS, 'w' .. of)
  call('LREM', QUEUE, '1', 'w' .. of)
  waiting = waiting - 1
  freed = true
  if frontField == 'w' .. of then
    front, frontField = nil, nil
  end
end

-- publish tells a waiter to ask again, or what it is granted. Returns how many heard it.
local function publish(field, w, grant)
  return w.channel ~= '' and call(ARGV[1], w.channel, string.sub(field, 2) .. (grant or '') .. '\t' .. LOCK) or 0
end

-- first finds the first waiter who is alive. The dead are told, for they may only be late.
local function first()
  while waiting > 0 and not front do
    frontField = call('LINDEX', QUEUE, '0')
    front = waiter(frontField)
    if front and front.beat <= now then
      publish(frontField, front)
    end
    if not front or front.beat <= now then
      dropWaiter(string.sub(frontField, 2))
    end
  end
  return frontField, front
end

-- expire ends what is over.
local function expire()
  if not many then
    return
  end
  if sole and soleEnds <= now then
    dropHolder(soleID)
  end
  if use.n > 0 then
    for _, field in ipairs(call('ZRANGEBYSCORE', ENDS, '-inf', text(now))) do
      dropHolder(string.sub(field, 2), unpackHolder(call('HGET', RECORDS, field)))
    end
  end
  first()
end

-- reserve gives n tokens in a row above floor: the clock in microseconds, so that tokens
-- grow even if the counter was lost or is an old one, unless the counter is ahead of it.
-- It gives fewer, but one, to keep the counter from running ahead of the clock by more than
-- a few milliseconds: else tokens would not grow when the counter is lost then.
local function reserve(n, floor)
  local token = math.max(tonumber(call('GET', COUNTER) or 0) + 1, micro, floor + 1)
  n = math.min(n, math.max(1, micro + LEAD - token), LAST_TOKEN - token + 1)
  call('SET', COUNTER, text(token + n - 1))
  return token, n
end

-- wake lets the first waiter in if it may be granted now. Under a closure it is woken
-- anyway: it may want to give up, and then the next is woken in turn.
--
-- Who wants the name alone may be granted it on the spot, which saves the way there and
-- back, but not for longer than its heartbeat: it may be dead. It counts from when it asked
-- last, which is before now, and renews as always. If nobody hears of it, it is no grant.
local function wake()
  local field, w = first()
  if not field or field == 'w' .. id then
    return -- the caller is being answered
  end
  local fits = admits(w.mode, w.weight, w.limit)
  if not fits or w.unasked == 0 then
    if fits or kept() then
      publish(field, w)
    end
    return
  end
  local token, n = reserve(1, 0)
  if n < 1 then
    publish(field, w) -- there are no tokens left: it will be told when it asks
  elseif publish(field, w, '\t' .. w.sent .. '\t' .. text(token) .. '\t' .. text(waiting - 1)) > 0 then
    local of = string.sub(field, 2)
    dropWaiter(of)
    put(of, {mode = EXCLUSIVE, weight = 1, limit = 0, state = HELD, since = now, token = token, tokens = 1,
      owner = w.owner, meta = w.meta}, now + w.unasked)
  end
end

-- finish writes the summary.
local function finish()
  if not many then
    return
  end
  if not sole and use.n == 0 and waiting == 0 then
    call('DEL', LOCK, RECORDS, ENDS, QUEUE)
    return
  end
  if freed then
    wake()
  end
  local state
  if sole and sole.state == HELD then
    state = string.format('S%.0f\t%s\t%.0f\t%.0f\t%.0f\t%d\t%s\t%s', use.x, soleID, soleEnds, sole.since, sole.token,
      sole.tokens, sole.owner, sole.meta)
  else
    state = string.format('C%d %d %.0f %.0f %d %.0f\t%s\t%s\t%s', use.n, use.m, use.s, use.l, use.k, use.x, soleID or '',
      soleEnds and text(soleEnds) or '', sole and pack(sole) or '')
  end
  if value then
    call('LSET', LOCK, '0', state)
  else
    call('RPUSH', LOCK, state)
  end
  if fresh then
    local ends = text(use.x)
    call('PEXPIREAT', LOCK, ends)
    call('PEXPIREAT', RECORDS, ends)
    if use.n > 0 then
      call('PEXPIREAT', ENDS, ends)
    end
    if waiting > 0 then
      call('PEXPIREAT', QUEUE, ends)
    end
  end
end

-- plain writes an exclusive holder that nobody waits behind.
local function plain(of, h, ttl)
  call('DEL', LOCK, RECORDS, ENDS, QUEUE)
  call('RPUSH', LOCK, table.concat({'P' .. of, text(h.since), text(h.tokens), h.owner, h.meta, text(h.token)}, '\t'))
  call('PEXPIRE', LOCK, ttl)
end

local function raise(floor)
  if floor > tonumber(call('GET', COUNTER) or 0) then
    call('SET', COUNTER, text(floor))
  end
end

-- show is a holder as it is told: its identity, its end and its record.
local function show(of, ends, record)
  return table.concat({of, ends, record}, '\t')
end

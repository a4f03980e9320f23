-- The whole state of a name. This part stands in front of acquire, release, renew and show.
--
-- lock     'P' and a record: one exclusive holder, the key lives as long as its grant.
--          'C': the rest of the keys say more. All of them end with the last that is in them.
-- counter  the last token given, for all names of this server or slot
-- records  h<id> -> a holder's record, w<id> -> a waiter's record, and a summary of holders:
--          n their number, m mode, s sum of weights, l limit, k how many are kept closed
-- ends     h<id> by when it ends, in ms
-- queue    w<id> by its place
-- beats    w<id> by when it is taken for dead
--
-- ARGV[1] is the command to publish with, ARGV[2] the identity of the caller.
local LOCK, COUNTER, RECORDS, ENDS, QUEUE, BEATS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id = ARGV[2]
local call = redis.call

local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
local now = math.floor(micro / 1000)

local EXCLUSIVE, SHARED, PERMITS = 1, 2, 3
local HELD, DONE = 0, 1
local LAST_TOKEN = 9007199254740991

local function text(n)
  return string.format('%.0f', n)
end

-- A holder: mode, weight, limit, state, since, token, tokens, owner, meta.
local function pack(h)
  return table.concat({text(h.mode), text(h.weight), text(h.limit), text(h.state), text(h.since),
    text(h.token), text(h.tokens), h.owner, h.meta}, '\t')
end

local function unpackHolder(record)
  if not record then
    return nil
  end
  local mode, weight, limit, state, since, token, tokens, owner, meta =
    string.match(record, '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t([^\t]*)\t([^\t]*)$')
  return {mode = tonumber(mode), weight = tonumber(weight), limit = tonumber(limit), state = tonumber(state),
    since = tonumber(since), token = tonumber(token), tokens = tonumber(tokens), owner = owner, meta = meta}
end

-- The record of a lock with one exclusive holder: see take.lua.
local function packPlain(of, h)
  return table.concat({'P' .. of, text(h.since), text(h.tokens), h.owner, h.meta, text(h.token)}, '\t')
end

local function unpackPlain(value)
  local of, since, tokens, owner, meta, token = string.match(value, '^P(%x+)\t(%d+)\t(%d+)\t([^\t]*)\t([^\t]*)\t(%d+)$')
  return of, {mode = EXCLUSIVE, weight = 1, limit = 0, state = HELD, since = tonumber(since),
    token = tonumber(token), tokens = tonumber(tokens), owner = owner, meta = meta}
end

-- A waiter: mode, weight, limit, joined, channel, owner, meta.
local function unpackWaiter(record)
  if not record then
    return nil
  end
  local mode, weight, limit, joined, channel = string.match(record, '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t([^\t]*)\t')
  return {mode = tonumber(mode), weight = tonumber(weight), limit = tonumber(limit), joined = joined, channel = channel}
end

-- What is there: sole is the holder of a plain lock, use sums up the holders of any other.
local value = call('GET', LOCK)
local sole, soleID
local use = {n = 0, m = 0, s = 0, l = 0, k = 0}
local many = value == 'C'
local freed = false -- the first waiter's chances may have changed

if many then
  local sums = call('HMGET', RECORDS, 'n', 'm', 's', 'l', 'k')
  use = {n = tonumber(sums[1] or 0), m = tonumber(sums[2] or 0), s = tonumber(sums[3] or 0),
    l = tonumber(sums[4] or 0), k = tonumber(sums[5] or 0)}
elseif value then
  soleID, sole = unpackPlain(value)
  if not sole.token then
    return redis.error_reply('WRONGTYPE the key ' .. LOCK .. ' is not a lock of Holdfast')
  end
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

local function put(of, h, ends)
  call('HSET', RECORDS, 'h' .. of, pack(h))
  call('ZADD', ENDS, text(ends), 'h' .. of)
end

-- crowd goes over from one holder to the whole.
local function crowd()
  if many then
    return
  end
  many = true
  if sole then
    local ends = now + call('PTTL', LOCK)
    put(soleID, sole, ends)
    count(sole, 1)
    sole = nil
  end
  call('SET', LOCK, 'C')
end

local function dropHolder(of, h)
  call('HDEL', RECORDS, 'h' .. of)
  call('ZREM', ENDS, 'h' .. of)
  count(h, -1)
  freed = true
end

local function dropWaiter(of)
  call('HDEL', RECORDS, 'w' .. of)
  call('ZREM', QUEUE, 'w' .. of)
  call('ZREM', BEATS, 'w' .. of)
  freed = true
end

-- expire ends what is over.
local function expire()
  if not many then
    return
  end
  for _, field in ipairs(call('ZRANGEBYSCORE', ENDS, '-inf', text(now))) do
    dropHolder(string.sub(field, 2), unpackHolder(call('HGET', RECORDS, field)))
  end
  for _, field in ipairs(call('ZRANGEBYSCORE', BEATS, '-inf', text(now))) do
    dropWaiter(string.sub(field, 2))
  end
end

local function holder(of)
  if sole then
    return of == soleID and sole or nil
  end
  return many and unpackHolder(call('HGET', RECORDS, 'h' .. of)) or nil
end

local function first()
  return many and call('ZRANGE', QUEUE, 0, 0)[1] or nil
end

local function publish(field, w)
  if w.channel ~= '' then
    call(ARGV[1], w.channel, string.sub(field, 2) .. LOCK)
  end
end

-- wake wakes the first waiter if it may be granted now. Under a closure it is woken anyway:
-- it may want to give up, and then the next is woken in turn.
local function wake()
  local field = first()
  if not field or field == 'w' .. id then
    return -- the caller is being answered
  end
  local w = unpackWaiter(call('HGET', RECORDS, field))
  if use.k > 0 or admits(w.mode, w.weight, w.limit) then
    publish(field, w)
  end
end

-- finish notes the summary, and when all of it ends.
local function finish()
  if not many then
    return
  end
  if use.n == 0 and call('ZCARD', QUEUE) == 0 then
    call('DEL', LOCK, RECORDS, ENDS, QUEUE, BEATS)
    return
  end
  call('HSET', RECORDS, 'n', use.n, 'm', use.m, 's', use.s, 'l', use.l, 'k', use.k)
  if freed then
    wake()
  end
  local ends = tonumber(call('ZRANGE', ENDS, -1, -1, 'WITHSCORES')[2] or 0)
  ends = text(math.max(ends, tonumber(call('ZRANGE', BEATS, -1, -1, 'WITHSCORES')[2] or 0)))
  for _, key in ipairs({LOCK, RECORDS, ENDS, QUEUE, BEATS}) do
    call('PEXPIREAT', key, ends)
  end
end

-- reserve gives n tokens in a row above floor: the clock in microseconds, so that tokens
-- grow even if the counter was lost or is an old one, unless the counter is ahead of it.
local function reserve(n, floor)
  local token = math.max(tonumber(call('GET', COUNTER) or 0) + 1, micro, floor + 1)
  n = math.min(n, LAST_TOKEN - token + 1)
  call('SET', COUNTER, text(token + n - 1))
  return token, n
end

local function raise(floor)
  if floor > tonumber(call('GET', COUNTER) or 0) then
    call('SET', COUNTER, text(floor))
  end
end

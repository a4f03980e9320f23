-- The keys of a name. This part reads its lock, for acquire, release, renew and show.
--
-- lock     a list of one element, so that RPUSH finds out whether it is free. Its first letter is the version of
--          the format of all these keys and of the messages:
--          P<id> owner meta since tokens token   one exclusive holder and no waiter; the key expires with the
--                                                grant
--          S<x> <b> <use> <holder>               any other state. All keys expire at x. No waiter is alive
--                                                after b. Use sums up the holders that are not exclusive:
--                                                number, mode, weights, limit, number of closed ones. Holder
--                                                is the exclusive one, alive or closed.
-- counter  the last token given, for all names of this server or slot
-- records  h<id> -> a holder that is not exclusive, w<id> -> a waiter
-- ends     h<id> by the time when it expires
-- queue    w<id> in order of arrival
--
-- holder: mode weight limit state ends id owner meta since tokens token
-- waiter: mode weight limit joined beat channel sent grant tokens owner meta
--
-- Fields are separated by tabs, those of use by spaces. Times are in ms. Beat is the time at which a waiter
-- that does not ask again counts as dead. Sent is when its client sent the last request, by the client's
-- clock. Grant is how long a grant that is pushed to it may last, or 0 if none may be pushed, and tokens how
-- many tokens it should have.
--
-- A later format must use other letters in the same key. Then programs of this version neither grant such a
-- name nor change its keys.
--
-- ARGV[1] is the command to publish with. ARGV[2] is the identity of the caller.
local COUNTER, LOCK, RECORDS, ENDS, QUEUE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, format, match = ARGV[2], string.format, string.match

local value = call('LINDEX', LOCK, '0')
local plain = value and string.byte(value) == 80
local x, b, use, sole = 0, 0, '', ''
if plain then
  x = now + call('PTTL', LOCK)
  sole = format('1\t1\t0\t0\t%.0f\t%s', x, string.sub(value, 2))
elseif value then
  x, b, use, sole = match(value, '^S(%d+)\t(%d+)\t([%d ]*)\t(.*)$')
  if not x then
    return redis.error_reply('WRONGTYPE ' .. LOCK)
  end
  x, b = tonumber(x), tonumber(b)
end

-- Keys live a little longer than their contents, so that not every call must extend them.
local function keysEnd(need)
  return need + math.floor((need - now) / 10)
end

local function expireAt(time, ...)
  for _, key in ipairs({...}) do
    call('PEXPIREAT', key, format('%.0f', time))
  end
end

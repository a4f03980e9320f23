-- Extends a grant, whatever else there is.
-- ARGV: publish, id, TTL in ms, mode, tokens, floor.
-- Returns 0 if it is gone, {'renewed', token, tokens}, or {'mode', mode} if it has that mode
-- and cannot have the other.
local ttl, mode, tokens, floor = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

expire()
local h = holder(id)
if not h or h.state ~= HELD then
  finish()
  return 0
end
local down = mode == SHARED and h.mode == EXCLUSIVE
if mode ~= h.mode and not down then
  finish()
  return {'mode', h.mode}
end
local token, n = 0, 0
if tokens > 0 and waiting == 0 then
  token, n = reserve(tokens, floor)
  h.token, h.tokens = token, n
elseif floor > 0 then
  raise(floor)
end
if down then
  crowd()
  sole, soleID, soleEnds = nil, nil, nil
  h.mode = SHARED
  freed = true
elseif h.mode ~= EXCLUSIVE then
  count(h, -1)
end
if h.mode == EXCLUSIVE and not many then
  plain(id, h, ARGV[3])
else
  put(id, h, now + ttl)
end
finish()
return {'renewed', token, n}

-- Extends a grant in any state of the name.
-- ARGV: publish, id, TTL in ms, mode, tokens, floor.
-- Returns 0 if the grant is gone, {'renewed', token, tokens}, or {'mode', mode} if its mode cannot
-- change to the requested one.
local ttl, mode, tokens, floor = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

evenIfFull()
expire()
local h = holder(id)
if not h or h.state ~= HELD then
  return finish(0)
end
local down = mode == SHARED and h.mode == EXCLUSIVE
if mode ~= h.mode and not down then
  return finish({'mode', h.mode})
end
local token, n = 0, 0
if tokens > 0 and waiting == 0 then
  token, n = reserve(COUNTER, tokens, 1, floor)
  if n > 0 then
    h.token, h.tokens = token, n
  end
elseif floor > tonumber(call('GET', COUNTER) or 0) then
  call('SET', COUNTER, decimal(floor))
end
if down then
  sole, freed, h.mode = nil, true, SHARED
elseif h ~= sole then
  count(h, -1)
end
h.ends = now + ttl
put(h)
return finish({'renewed', token, n})

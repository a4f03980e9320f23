-- Gives the exclusive grant of one identity to another one. The grant keeps its tokens, except that
-- it does not keep tokens below those that the caller gives.
-- ARGV: publish, the identity that has the grant, the one that gets it, owner, meta, TTL in ms, first
-- and number of its tokens.
-- Returns 1 if the second identity has the grant now, and 0 if neither of them had it.
local next, owner, meta, ttl, token, tokens = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

evenIfFull()
expire()
local h = holder(id) or holder(next)
if not h or h.state ~= HELD or h.mode ~= EXCLUSIVE then
  return finish(0)
end
h.id, h.owner, h.meta, h.ends = next, owner, meta, now + ttl
if h.token <= token then
  h.token, h.tokens = token, tokens
end
if token + tokens - 1 > tonumber(call('GET', COUNTER) or 0) then
  call('SET', COUNTER, decimal(token + tokens - 1))
end
put(h)
return finish(1)

-- Runs the script that follows, unless a higher token was seen before.
-- KEYS: those of the script, then the fence. ARGV: those of the script, then the token.
-- Returns {0, highest token} if it is refused, and otherwise {1, result of the script}.
local fence, token = table.remove(KEYS), table.remove(ARGV)
local highest = tonumber(redis.call('GET', fence) or 0)
if tonumber(token) < highest then
  return {0, highest}
elseif tonumber(token) > highest then
  redis.call('SET', fence, token)
end
local function script()

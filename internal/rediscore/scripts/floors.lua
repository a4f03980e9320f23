-- The plain lane of a node of a quorum. It is like plain.lua, but every call that takes a lock
-- has its own floor and counter, so that nodes grant the token that was proposed.
-- KEYS: unused, the lock of each call, the counter of each call that takes one.
-- ARGV: the number of calls; then for each call that takes a lock its record up to the time, its
-- TTL in ms and its floor, or for each call that releases one its record, '' and ''.
-- Returns the same as plain.lua.
local n, answers = tonumber(ARGV[1]), {micro}
for i = 1, n do -- releases first: see plain.lua
  if ARGV[3 * i] == '' then
    local removed = redis.pcall('LREM', KEYS[i + 1], '1', ARGV[3 * i - 1])
    answers[i + 1] = type(removed) == 'number' and removed or 0
  end
end
local counter = n + 1
for i = 1, n do
  local key, ttl = KEYS[i + 1], ARGV[3 * i]
  if ttl ~= '' then
    counter = counter + 1
    local token = math.max(tonumber(call('GET', KEYS[counter]) or 0), tonumber(ARGV[3 * i + 1])) + 1
    if token < micro - 200000 then
      token = micro -- see tokens.lua
    end
    local text = string.format('%.0f', token)
    local length = token <= 9007199254740991 and
      redis.pcall('RPUSH', key, ARGV[3 * i - 1] .. string.format('%.0f', now) .. '\t1\t' .. text)
    if length == 1 then
      call('SET', KEYS[counter], text)
      call('PEXPIRE', key, ttl)
      answers[i + 1] = token
    elseif type(length) == 'number' then
      call('RPOP', key)
      answers[i + 1] = {call('LINDEX', key, '0'), call('PTTL', key)}
    else
      answers[i + 1] = false
    end
  end
end
return answers

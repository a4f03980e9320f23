-- Ends a grant in all other cases. See push.lua for ARGV.
-- Returns 1 if it is done, 0 if it is not held, or {'mode', mode} if a grant of that mode
-- cannot be kept as done.
local what, state, keep = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

evenIfFull()
expire()
local h = holder(id)
if what == 'leave' and waiting > 0 and call('HEXISTS', RECORDS, 'w' .. id) == 1 then
  dropWaiter('w' .. id)
end
if not h or h.state ~= HELD and what ~= 'break' then
  return finish(what == 'leave' and 1 or 0)
end
if state == DONE and h.mode ~= EXCLUSIVE then
  return finish({'mode', h.mode})
end
if state == HELD then
  drop(h)
  return finish(1)
end
if h ~= sole then
  count(h, -1)
end
h.state, h.since, h.ends = state, now, now + keep
put(h)
freed = true -- the name is closed, not free, but the first waiter may want to give up
if state == DONE then -- every waiter wants to know
  for _, field in ipairs(call('LRANGE', QUEUE, 1, -1)) do
    local w = readWaiter(field)
    if w then
      publish(w)
    end
  end
end
return finish(1)

-- Ends a grant, whatever else there is.
-- ARGV: publish, id, 'release', 'leave' or 'break', the state to keep it in, for how long in ms.
-- Returns 1 done, 0 not held, or {'mode', mode} if such a grant cannot be kept like that.
local what, state, keep = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

expire()
local h = holder(id)
local found = h and (h.state == HELD or what == 'break')
if what == 'leave' and many and call('HEXISTS', RECORDS, 'w' .. id) == 1 then
  dropWaiter(id)
end
if not found then
  finish()
  return what == 'leave' and 1 or 0
end
if state == HELD then
  if sole then
    call('DEL', LOCK)
    return 1
  end
  dropHolder(id, h)
  finish()
  return 1
end

if state == DONE and h.mode ~= EXCLUSIVE then
  finish()
  return {'mode', h.mode}
end
crowd()
count(h, -1)
h.state, h.since = state, now
put(id, h, now + keep)
count(h, 1)
if state == DONE then -- whoever waits for the work to be done, wherever in the queue
  for _, field in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
    publish(field, unpackWaiter(call('HGET', RECORDS, field)))
  end
else
  freed = true -- not quite, but the first waiter may want to give up
end
finish()
return 1

-- Ends a grant, whatever else there is.
-- ARGV: publish, id, 'release', 'leave' or 'break', the state to keep it in, for how long in ms.
-- Returns 1 done, 0 not held, or {'mode', mode} if such a grant cannot be kept like that.
local what, state, keep = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

expire()
local h = holder(id)
local found = h and (h.state == HELD or what == 'break')
if what == 'leave' and waiting > 0 and call('HEXISTS', RECORDS, 'w' .. id) == 1 then
  dropWaiter(id)
end
if not found then
  finish()
  return what == 'leave' and 1 or 0
end
if state == HELD then
  if many then
    dropHolder(id, h)
    finish()
  else
    call('DEL', LOCK)
  end
  return 1
end

if state == DONE and h.mode ~= EXCLUSIVE then
  finish()
  return {'mode', h.mode}
end
if h.mode ~= EXCLUSIVE then
  count(h, -1)
end
h.state, h.since = state, now
put(id, h, now + keep)
if state == DONE then -- whoever waits for the work to be done, wherever in the queue
  for _, field in ipairs(call('LRANGE', QUEUE, 0, -1)) do
    local w = waiter(field)
    if w then
      publish(field, w)
    end
  end
else
  freed = true -- not quite, but the first waiter may want to give up
end
finish()
return 1

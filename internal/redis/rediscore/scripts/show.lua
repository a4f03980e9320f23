-- Describes the holders and waiters of a name. It changes nothing.
-- Returns {time in µs, {holder…}, {waiter…}}; a waiter is its identity and its record.
local holders, waiters = {}, {}
if sole and sole.ends > now then
  holders[1] = record(sole)
end
for _, field in ipairs(use.n > 0 and call('ZRANGEBYSCORE', ENDS, '(' .. decimal(now), '+inf') or {}) do
  holders[#holders + 1] = call('HGET', RECORDS, field)
end
for _, field in ipairs(waiting > 0 and call('LRANGE', QUEUE, 0, -1) or {}) do
  local w = readWaiter(field)
  if w and w.beat > now then
    waiters[#waiters + 1] = string.sub(field, 2) .. '\t' .. call('HGET', RECORDS, field)
  end
end
return {micro, holders, waiters}

-- Tells who holds and who waits. It changes nothing.
-- Returns {time in us, {holder…}, {waiter…}}, each led by its identity and, of holders, its end.
local holders, waiters = {}, {}
if sole and soleEnds > now then
  holders[1] = show(soleID, text(soleEnds), pack(sole))
end
if use.n > 0 then
  local ends = call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    if tonumber(ends[i + 1]) > now then
      holders[#holders + 1] = show(string.sub(ends[i], 2), ends[i + 1], call('HGET', RECORDS, ends[i]))
    end
  end
end
for _, field in ipairs(waiting > 0 and call('LRANGE', QUEUE, 0, -1) or {}) do
  local w = waiter(field)
  if w and w.beat > now then
    waiters[#waiters + 1] = string.sub(field, 2) .. '\t' .. call('HGET', RECORDS, field)
  end
end
return {micro, holders, waiters}

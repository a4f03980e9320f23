-- A token comes from a counter that follows the clock in µs: it is set to the clock when it is more than 1 ms
-- behind. So tokens grow even if the counter was lost, and after a failover to a replica that lags behind,
-- even while the old primary still grants. With a larger difference, both could issue the same tokens for
-- that long. With a smaller one, a busy server would set the counter more often.
--
-- reserve takes n consecutive tokens above floor and returns the first and their number. It takes fewer, but
-- at least `least`, if a block would run more than 4096 (maxBlock in store.go) ahead of the clock, because
-- those tokens would be issued again if the counter was lost. The number is below 1 if no tokens are left
-- below 2^53.
--
-- The key of a counter of a quorum node contains a number. Nodes with equal counters must choose equal
-- tokens, although their clocks differ and requests reach them at different times. So they round the clock
-- down to a step of 2^18 µs. Their counters may be further from their clocks, because such a node has no
-- failover, and does not vote for some time after it has lost data.
local function reserve(counter, n, least, floor)
  local token = call('INCRBY', counter, n) - n + 1
  local clock, behind, ahead = micro, 1000, 4096
  if string.byte(counter, -7) < 58 then -- a digit in front of ':token'
    clock, behind, ahead = micro - micro % 262144, 0, 1048576
  end
  if token > floor and token >= clock - behind and token + n <= clock + ahead then
    return token, n
  end
  token = math.max(token, floor + 1)
  if token < clock - behind then
    token = clock
  end
  n = math.min(n, math.max(least, clock + ahead - token), 9007199254740992 - token)
  call('SET', counter, string.format('%.0f', token + n - 1))
  return token, n
end

-- The rule for tokens.
--
-- A token comes from a counter that follows the clock in µs: it is set to the clock when it is
-- more than 1 ms behind. So tokens grow even if the counter was lost, and after a failover to a
-- replica that lags behind, even while the old primary still grants. With a larger difference,
-- both could issue the same tokens for that long. With a smaller one, a busy server would set the
-- counter more often.
--
-- reserve takes n consecutive tokens above floor and returns the first and their number. It takes
-- fewer, but at least `least`, if a block would run more than 4096 (maxBlock in store.go) ahead
-- of the clock, because those tokens would be issued again if the counter was lost. The number is
-- below 1 if no tokens are left below 2^53.
--
-- The key of a counter of a quorum node contains a number. Such a node has no failover, and does
-- not vote for some time after it has lost data. So its counter may be further from its clock.
-- All nodes then take the tokens that a client proposes, although requests are late and clocks
-- differ.
local function reserve(n, least, floor)
  local token = call('INCRBY', COUNTER, n) - n + 1
  if token > floor and token > micro - 1000 and token + n <= micro + 4096 then
    return token, n
  end
  local behind, ahead = 1000, 4096
  if string.find(COUNTER, '%d:token$') then
    behind, ahead = 200000, 1000000
  end
  token = math.max(token, floor + 1)
  if token < micro - behind then
    token = micro
  end
  n = math.min(n, math.max(least, micro + ahead - token), 9007199254740992 - token)
  call('SET', COUNTER, string.format('%.0f', token + n - 1))
  return token, n
end

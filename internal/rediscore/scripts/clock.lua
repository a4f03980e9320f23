-- This part is at the start of every script that takes tokens or handles a whole name. KEYS[1] is
-- the counter.
local COUNTER, call = KEYS[1], redis.call
local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
local now = math.floor(micro / 1000)

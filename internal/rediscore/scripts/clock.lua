-- In front of every script that takes tokens or looks at a whole name. KEYS[1] is the counter.
local COUNTER, call = KEYS[1], redis.call
local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
local now = math.floor(micro / 1000)

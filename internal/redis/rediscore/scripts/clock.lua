-- This part is at the start of every script that takes tokens or handles a whole name.
local call = redis.call
local clock = call('TIME')
local micro = clock[1] * 1000000 + clock[2]
local now = math.floor(micro / 1000)

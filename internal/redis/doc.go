// Package redis keeps locks on Redis servers, by whatever client library. The packages that
// bring a library along (redisstore and goredis) implement Conn, so that neither pulls the
// other's library into a program.
//
// There are at most two ways to do a thing: a complete one, which sees the whole state of a
// name, and a cheap one for locks that nobody else wants.
//
//	call     lane      script       used when                                  otherwise
//	acquire  batch     batch.lua    exclusive, one token, not queued, one      what is in the way is a
//	                                server, no replicas to wait for, and       waiter, or the call queues:
//	                                MaxInFlight requests are in flight         complete
//	         complete  acquire.lua  always right
//	release  batch     batch.lua    as above, and nothing to keep closed       not held, or others wait:
//	                                                                           complete
//	         complete  release.lua  always right
//	renew    plain     extend.lua   exclusive, no tokens wanted, no floor      others wait: complete
//	         complete  renew.lua    always right
//
// The complete scripts see to their usual cases first (join.lua, pass.lua) and build the whole
// state only for the rest. The rule for tokens is in tokens.lua and nowhere else; what is kept
// on the server is described in name.lua.
//
// A release grants the name to the first waiter and publishes the grant: see grant in state.lua
// for the server's part and waits.granted for the client's.
package redis

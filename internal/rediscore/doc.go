// Package redis keeps locks on Redis servers, by whatever client library. The packages that
// bring a library along (redisstore and goredis) implement Conn, so that neither pulls the
// other's library into a program.
//
// There are at most two ways to do a thing: a complete one, which sees the whole state of a
// name, and a cheap one for locks that nobody else wants.
//
//	call     lane      script       used when                                 otherwise
//	acquire  plain     plain.lua    exclusive, one token, no floor, not       held, and the call queues, or
//	                                queued, not contended lately, no          others wait: complete
//	                                replicas to wait for
//	         complete  acquire.lua  always right
//	release  plain     plain.lua    taken by the plain lane less than 2 ms    others wait, or not held:
//	                                ago, nothing to keep closed               complete
//	         complete  release.lua  always right
//	renew    plain     extend.lua   taken by the plain lane, no tokens        others wait: complete
//	                                wanted, no floor
//	         complete  renew.lua    always right
//
// Plain calls are batched in one script while MaxInFlight of them are in flight. A single plain
// release is the command that the script would run, LREM, without the script.
//
// The complete scripts see to their usual cases first (join.lua, pass.lua) and build the whole
// state only for the rest. The rule for tokens is in tokens.lua and nowhere else; what is kept
// on the server is described in name.lua.
//
// A release grants the name to the first waiter and publishes the grant: see grant in state.lua
// for the server's part and waits.granted for the client's.
package rediscore

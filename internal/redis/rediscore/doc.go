// Package rediscore keeps locks on Redis servers. Package redisstore implements Conn with a client library,
// so that the root module needs none.
//
// Acquire, release and renew each have two lanes: a complete one, which handles every state of a
// name, and a plain one for locks that no other client wants.
//
//	call     lane      script       used when                                 falls back to complete
//	acquire  plain     plain.lua    exclusive, one token, not queued, not     if the name is held and the
//	                                contended lately, no replicas to wait     request queues, or others wait
//	                                for
//	         complete  acquire.lua  otherwise
//	release  plain     plain.lua    taken by the plain lane less than 2 ms    if others wait, or the grant
//	                                ago, or at any time at a node of a        is gone
//	                                quorum; nothing to keep closed
//	         complete  release.lua  otherwise
//	renew    plain     extend.lua   taken by the plain lane, no tokens        if it has expired
//	                                wanted, no floor; or exclusive, no
//	                                floor, and its slot migrates
//	         complete  renew.lua    otherwise
//
// While maxInFlight plain calls are in flight, further ones are sent in batches. A single plain release is
// the command that the script would run, LREM, without the script.
//
// acquire.lua and release.lua handle their usual cases first (join.lua, push.lua) and build the whole state
// only for the others. The rule for tokens is in tokens.lua, and the format of the keys in name.lua. A
// release grants the name to the first waiter and pushes the grant to it: see grant in state.lua for the
// server's part and waits.pushed for the client's. A cancelled Acquire is undone by Leave and by nothing
// else: see late.go.
package rediscore

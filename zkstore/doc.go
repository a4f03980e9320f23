// Package zkstore keeps locks on ZooKeeper 3.5 and later, tested with 3.8: a single server or an ensemble.
// Importing it registers these URLs, the second with TLS:
//
//	zk://[USER:PASSWORD@]HOST[:PORT],…[/ROOT]
//	zks://[USER:PASSWORD@]HOST[:PORT],…[/ROOT]
//
// Name all servers, so that a client can change to another one. USER and PASSWORD are those of a digest ACL:
// only this user has access to the nodes. ROOT is the node that contains everything, "/holdfast" by default.
// The parameter session=DURATION is the timeout of the session to ask for, 40s by default. With TLS there are
// ca=FILE, cert=FILE, key=FILE and servername=NAME; the files are read for every connection.
//
// # Promises
//
// Locks exclude each other between all clients, in every mode, and waiters are served strictly in order of
// arrival, even while servers fail. Two grants of one name that exclude each other are never live at the same
// time if
//
//   - a majority of the servers keeps its data. Nothing is granted without a majority.
//   - the clocks of client and servers run at the same speed, to a twentieth. They need not show the same time.
//   - the session's timeout is at least five of the servers' ticks (tickTime, 2 s by default).
//   - all servers grant the same timeout. If one that grants less resumes a session, leases are shorter from
//     their next renewal on.
//
// Every grant and every renewal is a write that a majority has agreed on. A read from one server may be
// outdated, and is never enough to hold a lock.
//
// Records that outlive their session are timed by the wall clock of the leader: those that a release keeps
// (Once, MinHold), and grants that were not released when their store was closed, such as a lock that
// "holdfast renew" has renewed. If that clock is changed, or the clock of the next leader differs, they end
// earlier or later by that time. Other locks do not depend on it.
//
// # Session and TTL
//
// A store has one session for all its locks. By default the servers grant a timeout from 2 to 20 of their
// ticks, 4 s to 40 s.
//
//   - A TTL is at most four fifths of it. A lease that asks for more gets four fifths, which is 32 s of a
//     session of 40 s. Lease.Deadline shows it, and the command prints a message. The rest is a margin,
//     because servers tell their leader only once in half a tick which sessions are alive.
//   - A shorter TTL is enforced by the holder's process, which removes grants that were not renewed. If the
//     process dies or is cut off, its locks and its places in queues last until its session ends. In that case
//     others wait for the time in the parameter session, not for the TTL. Until then a listing shows the
//     holder, with no time left.
//
// Choose a session that is longer than an election takes (some seconds), and short enough to wait for after a
// holder crashed: 10 to 40 seconds suit most programs. A holder knows at its deadline, on its own clock, that
// its lease is lost. A client leaves a server that does not reply for 1.5 s, or for 4 s if the URL names only
// one.
//
// # Tokens
//
// A token is computed from the zxid, the number of the change that granted it, and from a table in ROOT/token
// that maps zxids to small numbers: a change has 256 tokens for hand-overs inside a client. An ensemble with
// 20,000 changes a second uses up all tokens below 2^53 in 55 years; an election uses as many tokens as 262,144
// changes. After that, locks fail with an error that says so. Do not remove ROOT/token: tokens would start
// lower.
//
// # What is on the servers
//
//	ROOT/token                                   the table of tokens
//	ROOT/1f/order:42                             a name in use, in one of 64 buckets
//	ROOT/1f/order:42/x1.0-ID-0000000000          one request: exclusive, weight, limit
//	ROOT/1f/order:42/kx1.0-ID-0000000000         kept by a release
//
// Requests are ephemeral nodes in order of arrival; their data says which are granted. The name of a node
// contains the identity of its request: a request whose reply was lost is found by it, and no other call can
// affect it. The parents are containers, which are removed by the last client to leave, or by the servers after
// a crash. A kept record whose time has passed is removed by its client, by a client that uses or lists
// the name, or by other clients that keep records.
//
// # Doctor
//
// "holdfast doctor" sends the commands srvr, mntr and conf to the servers. By default servers reply to srvr
// only. Allow the others with 4lw.commands.whitelist=srvr,mntr,conf in zoo.cfg.
//
// # What it costs
//
// An uncontended lock costs two round trips. While more than four requests are in flight, further ones are
// batched into transactions. A waiter costs the servers two watches, on the node in front of it and on the data
// of the parent, which changes when Once closes the name, and a few reads in a third of the heartbeat (20 s). A
// waiter for permits that is next watches the list of requests, because each holder can make room. A hand-off
// is the release, the event, one read and one write.
//
// At most 1,000 requests can wait for a name, one for each client, because each of them lists the whole queue
// when it joins and when it asks. Further ones fail with an error that says so. When 1,000 clients joined at
// once, on two cores that they shared with the server, all were queued after 1.3 s. Meanwhile renewals took 0.7
// s at most, and afterwards hand-offs took 0.7 s. When 3,000 clients join at once, renewals may get no reply
// for some seconds, until the others have been refused.
package zkstore

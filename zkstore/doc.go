// Package zkstore keeps locks on ZooKeeper 3.5 and later, tested with 3.8: a single server or
// an ensemble. Importing it makes this URL known:
//
//	zk://[USER:PASSWORD@]HOST[:PORT],…[/ROOT]
//
// Give all servers, so that a client finds another one when it loses its own. USER and
// PASSWORD are those of a digest ACL: all nodes are made for this user alone. ROOT is the node
// below which everything is kept, "/holdfast" if it is left out. Parameters, behind a question
// mark:
//
//	session=DURATION    timeout of the session to ask for, 40s by default
//
// # What ZooKeeper promises
//
// Locks exclude each other between all clients, in every mode, strictly in order of arrival,
// with tokens, also while servers fail. Never two grants of one name are alive if
//
//   - a majority of the servers keeps what it was told. Nothing is granted without one.
//   - the clocks of client and servers run at the same speed, to a twentieth. They need not
//     show the same time: sessions are counted, not dated.
//   - the session's timeout is at least five of the servers' ticks (tickTime, 2 s by default):
//     see below.
//
// Every grant and every renewal is a write that a majority has agreed on. What a single
// server says may be old, and is never enough to hold a lock.
//
// What a release keeps (Once, AtLeast) outlives the session that made it, and so is counted
// by the servers' wall clock: from the time that the leader wrote to the one that it writes
// now. If a leader's clock is set, or that of the next leader differs, it lasts shorter or
// longer by as much. Locks do not depend on it.
//
// # Session and TTL
//
// A store has one session, whatever it holds. The server may grant another timeout than asked
// for: from 2 to 20 of its ticks by default, 4 s to 40 s. [Store.SessionTimeout] tells it.
//
//   - A TTL is at most four fifths of it, and a lease that asks for more gets that: 32 s of a
//     session of 40 s. The rest is for what a server knows and its leader does not yet: that
//     a session lives is passed on once per half a tick, so that the loss of a server right
//     after its answer makes the session look older than it is.
//   - A TTL that is shorter is kept by the holder's process, which removes what was not
//     renewed, and after Close by the servers' clock. If the process dies or is cut off, its
//     locks are free when its session has ended: session=, not the TTL, is what others wait
//     for then. Likewise the place of a waiter that died.
//
// The holder of a lease knows at its deadline, on its own clock, that it is lost, counted from
// the last renewal that was answered. It does not rely on being told: a client learns that its
// session has ended only when it is connected again.
//
// Choose a session longer than an election takes (some seconds) and as short as a crashed
// holder's work may wait: 10 to 40 seconds suit most.
//
// # Tokens
//
// A token is the number of the change that granted it, zxid, plus a base. The base is a number
// in the node ROOT/token, which starts at 0 and grows when tokens are wanted in blocks, for
// hand-overs inside a client, or above a floor. A zxid consists of the number of elections and
// of the changes since the last; so tokens stay below 2^53 for two million elections. Beyond
// that a lock fails with an error that says so. Do not remove ROOT/token: tokens would start
// lower.
//
// # What is on the servers
//
//	ROOT/token                                   the base, if there is one
//	ROOT/1f/order:42                             a name in use, in one of 64 buckets
//	ROOT/1f/order:42/x1.0-ID-0000000000          one request: exclusive, weight, limit
//	ROOT/1f/order:42/kx1.0-ID-0000000000         kept by a release; or "done"
//
// Requests are ephemeral nodes in order of arrival; who holds is in their data, with owner
// and meta. Every node has the identity of its request in its name, by which a request whose
// answer was lost is found again, and which no other call can hit. A node that is left of an
// earlier session is never relied on: it is replaced, in its place, or gone.
// All others but the base are containers: whoever leaves last removes the name, and the
// servers remove what a crash left empty. Characters that ZooKeeper does not allow in a node
// are written as %XX.
//
// What a release kept (and a grant whose store was closed) is removed after its time by its
// maker, or by whoever looks at the name or lists it. If the maker is gone and nobody comes,
// other processes that keep records remove it: for each of their own they look at two names,
// all round. So what is left over does not grow, but the last of it goes only with the next
// use of Once or AtLeast, or with a listing.
//
// # What it costs
//
// A lock that nobody else wants is two round trips: one transaction makes the name and the
// request; then the request is removed, and behind it the name, for which nobody waits. When
// more than four are on their way at a time, they go together in one transaction. A waiter
// costs the servers one watch, on the one in front of it, and a few reads in a third of the
// heartbeat (20 s). A hand-off is the release, the news of it, one read and one write. Leases
// are renewed together, up to 500 in a transaction.
//
// # ZooKeeper or Redis
//
// ZooKeeper loses no lock when a server fails, and needs no clock; choose it where it is there
// anyway, or where a lock held twice for a moment costs more than three servers do. Redis is
// several times as fast, and ends a dead holder's lock exactly after its TTL: here that takes
// the session's timeout, 4 s at least with the servers' default settings.
package zkstore

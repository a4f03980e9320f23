// Package zkstore keeps locks on ZooKeeper 3.5 and later, tested with 3.8: a single server or
// an ensemble. Importing it registers these URLs, the second with TLS:
//
//	zk://[USER:PASSWORD@]HOST[:PORT],…[/ROOT]
//	zks://[USER:PASSWORD@]HOST[:PORT],…[/ROOT]
//
// Give all servers, so that a client finds another one when it loses its own. USER and
// PASSWORD are those of a digest ACL: all nodes are made for this user alone. ROOT is the node
// below which everything is kept, "/holdfast" by default. Parameters: session=DURATION is the
// timeout of the session to ask for, 40s by default. With TLS: ca=FILE, cert=FILE, key=FILE,
// servername=NAME; the files are read for every connection.
//
// # Promises
//
// Locks exclude each other between all clients, in every mode, strictly in order of arrival,
// with tokens, also while servers fail. There are never two live grants of one name if
//
//   - a majority of the servers keeps its data. Nothing is granted without a majority.
//   - the clocks of client and servers run at the same speed, to a twentieth. They need not
//     show the same time.
//   - the session's timeout is at least five of the servers' ticks (tickTime, 2 s by default).
//   - all servers grant the same timeout. If one that grants less resumes a session, leases are
//     shorter from their next renewal on.
//
// Every grant and every renewal is a write that a majority has agreed on. What one server says
// may be old, and is never enough to hold a lock.
//
// Records that a release keeps (Once, MinHold) outlive the session and are timed by the wall
// clock of the leader. If it is set, or the next leader's differs, they last shorter or longer
// by as much. Locks do not depend on it.
//
// # Session and TTL
//
// A store has one session for all its locks. The servers grant a timeout from 2 to 20 of their
// ticks by default, 4 s to 40 s: see [Store.SessionTimeout].
//
//   - A TTL is at most four fifths of it; a lease that asks for more gets that, 32 s of a
//     session of 40 s, and the client logs that once. The rest is for what a server knows and
//     its leader does not yet: that a session lives is passed on once per half a tick.
//   - A shorter TTL is enforced by the holder's process, which removes grants that were not
//     renewed. If the process dies or is cut off, its locks are free, and its waiters gone,
//     when its session has ended. So session=, not the TTL, is what others wait for then.
//
// Choose a session longer than an election takes (some seconds) and as short as a crashed
// holder's work may wait: 10 to 40 seconds suit most. A holder knows at its deadline, on its
// own clock, that its lease is lost, and does not rely on being told.
//
// A server that does not answer for 1.5 s is left for another one, also by an idle client.
//
// # Tokens
//
// A token is computed from the zxid, the number of the change that granted it, and from a table
// in ROOT/token that makes it small: a change has 256 tokens for hand-overs inside a client. An
// ensemble that makes 20,000 changes a second day and night uses up the tokens, below 2^53, in
// 55 years; an election costs as many as 262,144 changes. After that, locks fail with an error
// that says so. Do not remove ROOT/token: tokens would start lower.
//
// # What is on the servers
//
//	ROOT/token                                   the table of tokens
//	ROOT/1f/order:42                             a name in use, in one of 64 buckets
//	ROOT/1f/order:42/x1.0-ID-0000000000          one request: exclusive, weight, limit
//	ROOT/1f/order:42/kx1.0-ID-0000000000         kept by a release; or "done"
//
// Requests are ephemeral nodes in order of arrival; their data says who holds. The identity of a
// request is in the name of its node: a request whose reply was lost is found by it, and no
// other call can hit it. All nodes but the table and kept records are ephemeral or containers:
// the last to leave removes the name, and the servers remove what a crash left empty. A kept
// record is removed after its time by its maker, by a client that looks at the name or lists it,
// or by other clients that keep records, two names for each.
//
// # What it costs
//
// A lock that nobody else wants costs two round trips. When more than four are in flight, takes
// and releases are sent together as one transaction. A waiter costs the servers one watch, on
// the node in front of it, and a few reads in a third of the heartbeat (20 s). A hand-off is the
// release, the event, one read and one write. Leases are renewed many in a transaction.
package zkstore

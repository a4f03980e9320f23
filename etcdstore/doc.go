// Package etcdstore keeps locks on etcd, a single server or a cluster. Importing it makes
// these URLs known:
//
//	etcd://[USER:PASSWORD@]HOST[:PORT],…[/PREFIX]
//	etcds://…    the same with TLS
//
// All keys begin with the prefix, "holdfast" unless the URL names another; only stores of one
// prefix exclude each other. Parameters of etcds, behind a question mark:
//
//	ca=FILE, cert=FILE, key=FILE    whom to trust, and who we are, in PEM
//	servername=NAME                 the name in the servers' certificates
//
// A program that has a client already gives it to [New].
//
// # What etcd promises
//
// Locks exclude each other between all clients, in every mode, strictly in order of arrival,
// with tokens. That holds while any minority of the servers is down, cut off or replaced, and
// through every change of the leader: a write counts only once a majority has it on disk, and
// every decision here is such a write, under the condition that what it was decided by has not
// changed. A minority grants nothing. When more than half are gone nothing is granted or
// renewed, and holders are told in time that their lease is over.
//
// Never two grants of one name are alive if
//
//   - the servers keep what they were told: no --unsafe-no-fsync, and no member that comes
//     back without its data under its old name;
//   - the cluster is not restored from a backup while grants live. A backup is the past: it
//     knows of other grants, and its revisions, which tokens are made of, begin again lower.
//     Start a restored cluster with --bump-revision and --mark-compacted, or use another
//     prefix.
//   - the clocks of the servers run at about the same speed, within a lease's margin of a
//     twentieth of its TTL. What time it is does not matter to them.
//
// What is paused, or cut off, can still act after its lease: send the token, see package
// fence. FAULTS.md beside this file lists which faults were tried, and by which tests.
//
// # When to choose it
//
// Over Redis: when two holders at once, even for a moment after a failover, must not be. Over
// a quorum of Redis: for its order, modes, and one thing less to run right. A lock and unlock
// are two writes through a majority, each with a write to disk: some milliseconds, and some
// thousand a second in all, where Redis does tens of thousands. Within one process hand-overs
// cost no write, as on every store.
//
// # TTL
//
// etcd counts whole seconds: a TTL is rounded up. The shortest is 2 s here; a server with an
// election timeout of T grants no less than 1.5 T. The longest is that of Holdfast. What was
// granted is what counts, and what Lease.Deadline goes by: it may be longer than asked for,
// and shorter by up to a twentieth, as leases of etcd are used again. A grant that nobody
// renews ends up to a second later than its TTL; after a change of the leader all get their
// whole TTL anew. Keep counts whole seconds as well. The time that is left of a grant is told
// in whole seconds, and its age by the clocks of those who wrote and who read it.
//
// # Tokens
//
// A token is the revision of the write that granted, times 1024: the next grant has a later
// one, whatever happened to the servers. The rest of the 1024 is for hand-overs within a
// process. If tokens above others are asked for (they come from another store, say), a number
// is added from then on, which is kept in PREFIX/floor for good. Tokens stay below 2^53 for
// 2^43 revisions: 28 years of ten thousand writes a second.
//
// # What is on the servers
//
// A key for each grant and each waiter. Behind the name comes a tab (a name has none) and a
// letter, and behind that, but for the exclusive grant, of which there is one, the lease that
// the key goes by:
//
//	PREFIX/lock/NAME<tab>e           held exclusively
//	PREFIX/lock/NAME<tab>s<lease>    held: s shared, p permits
//	PREFIX/lock/NAME<tab>c<lease>    closed: c cooling, d done
//	PREFIX/lock/NAME<tab>w<lease>    waiting, in order of the create revision
//	PREFIX/floor                     see Tokens; mostly not there
//
// The value is in plain text. Look at it with "etcdctl get --prefix holdfast/lock/", or use
// "holdfast ls". Each key has a lease of etcd of its own, which is renewed with the grant and
// ends it; a released one's lease serves the next. Close ends what is unused, and without
// Close they end by themselves.
//
// A waiter watches one key, that of who is in front of it, and all waiters of a process share
// one stream. If a watch breaks, by a compaction, a change of the leader or a lost connection,
// they ask again. Who waits asks every 4 s as a sign of life; who has not for 8 s loses its
// place, is not granted on it, and starts again at the end. What an ask reads does not grow with
// the queue: of a place beyond 64 it tells what it was at most. A waiter whom no server answers
// is told with ErrUnavailable, and does not wait for ever.
//
// # Rights
//
// With authentication on, a user for this package alone:
//
//	etcdctl role add locks
//	etcdctl role grant-permission --prefix locks readwrite holdfast/
//	etcdctl user add locks
//	etcdctl user grant-role locks locks
//
// # Members
//
// Name all servers in the URL: a call goes to one after the other, and one that failed is
// repeated elsewhere. A server that hangs without closing its connections costs those who call
// it two seconds; then its connection is closed, and it is left out until it answers. A server
// that was away is tried once a second, and used as soon as it is back. (A client that is given
// to [New] goes by its own settings: gRPC tries every two minutes in the end unless told
// otherwise.)
//
// # Compaction
//
// Each write leaves a revision behind until etcd compacts it: let it do that by itself, and
// often (--auto-compaction-retention=5m, for example), or its database gets full. Keys are used
// again, so that a name does not get slower by how often it was locked. Hand-overs within a
// process write nothing.
//
// # Many at once
//
// What a process locks and unlocks at the same time on different names goes to the servers
// together, each with its own condition, once more than four requests are on their way. That
// is why many goroutines are faster here than the plain requests of etcd's client would be.
package etcdstore

// Package etcdstore keeps locks on etcd, a single server or a cluster. Importing it registers these URLs:
//
//	etcd://[USER:PASSWORD@]HOST[:PORT],…[/PREFIX]
//	etcds://…    the same with TLS
//
// All keys begin with the prefix, "holdfast" unless the URL names another. Only stores with the same prefix
// exclude each other. Parameters of etcds, after a question mark:
//
//	ca=FILE              certificates of the authorities to trust, in PEM
//	cert=FILE, key=FILE  certificate and key of the client, in PEM
//	servername=NAME      the name in the servers' certificates
//
// The files are read again for each new connection, so certificates can be replaced while a program runs. A
// program that has an etcd client already passes it to [New].
//
// # Guarantees
//
// Locks exclude each other between all clients, in every mode, and waiters are served strictly in order of
// arrival. Under the conditions below, this holds while a minority of the servers is down, cut off or replaced,
// and through changes of the leader. Every decision is a write that a majority has on disk, and it is made only
// if the keys that it was based on have not changed. A minority grants nothing. When more than half of the
// servers are gone, nothing is granted or renewed, and holders learn in time that their lease has ended.
//
// Two grants of one name that exclude each other are never live at the same time, provided that
//
//   - the servers keep their data: no --unsafe-no-fsync, and no member that comes back without its data under
//     its old name;
//   - the cluster is not restored from a backup while there are live grants. A backup has older grants. Its
//     revisions, from which tokens are made, start again at a lower number. Start a restored cluster with
//     --bump-revision and --mark-compacted, or use another prefix;
//   - no server continues after it was suspended for longer than a second, for example by SIGSTOP, in a virtual
//     machine that was paused, or by a disk that hung. A leader that continues after another one was elected
//     may end all leases that the other one has renewed, before it notices (etcd-io/etcd issue 15247). That
//     happened in 5 of 20 attempts with etcd 3.6.16. The next waiter then gets the lock, with a higher token,
//     and the holder learns of it at its next renewal. A server that was killed, restarted or cut off does not
//     do this;
//   - the clocks of clients and servers run at about the same speed: during a TTL they drift apart by less than
//     a lease's margin, a twentieth of its TTL and at most a second. The time of day does not matter.
//
// A holder that is paused or cut off can still act after its lease has ended: let the resource check tokens, as
// package fence does. FAULTS.md in this folder lists the faults that were tried, and the tests.
//
// # Cost
//
// A lock and an unlock are two writes through a majority, each with a write to disk. A pair takes a few
// milliseconds, and a few thousand pairs a second are possible, whereas Redis handles tens of thousands. While
// four requests are in flight, further locks and unlocks of different names are sent in batches. Hand-overs
// within one process cost no write.
//
// # TTL
//
// etcd counts whole seconds, so a TTL is rounded up. The shortest is 2 s; a server with an election timeout of
// T grants no less than 1.5 T. The longest is that of Holdfast. Lease.Deadline follows the TTL that was
// granted. That TTL may be longer than requested, or shorter by up to a twentieth, because leases of etcd are
// reused. A grant that is not renewed ends up to a second after its TTL. After a change of the leader, all
// grants get their whole TTL again. Once and MinHold also keep a name closed for whole seconds. The remaining
// time of a grant is reported in whole seconds. Its age depends on the clocks of two clients, the one that
// wrote it and the one that reads it.
//
// # Tokens
//
// A token is the revision of the granting write times 1024. The next grant has a later revision, whatever
// happened to the servers. The 1023 tokens in between are for hand-overs within a process. If a program that
// uses the store directly asks for tokens above some number, an offset is added from then on. It is kept in
// PREFIX/floor forever. Tokens stay below 2^53 for 2^43 revisions, that is for 28 years at ten thousand writes
// a second.
//
// # Keys
//
// There is a key for each grant and each waiter. The name is followed by a tab, which no name contains, and a
// letter. Then comes the lease of the key, except for an exclusive grant, of which there is only one:
//
//	PREFIX/lock/NAME<tab>e           held exclusively
//	PREFIX/lock/NAME<tab>s<lease>    held: s shared, p permits
//	PREFIX/lock/NAME<tab>c<lease>    closed: c cooling, d done
//	PREFIX/lock/NAME<tab>w<lease>    waiting, in order of the create revision
//	PREFIX/floor                     see Tokens; usually does not exist
//
// Values are JSON. Read them with "etcdctl get --prefix holdfast/lock/", or use "holdfast ls". Each key has an
// etcd lease of its own, which is renewed with the grant and ends it. The lease of a released grant is reused
// for the next one. Close revokes unused leases; without Close they expire.
//
// A waiter watches one key, that of the waiter or holder in front of it. All waiters of a process share one
// stream. If a watch breaks, the waiters ask again. As its heartbeat, a waiter asks every 4 s, or every second
// while other calls of its client wait behind it. A waiter that has not asked for 8 s loses its place and
// starts again at the end. Beyond place 64, the place is an upper bound.
//
// At most 1,000 requests can wait for a name, one for each client, because the server scans the whole queue for
// each request that joins. Further ones fail with an error that says so. When 1,000 clients joined at once, on
// two cores that they shared with the server, all were queued after 1.0 s. Meanwhile renewals took 0.5 s at
// most, and afterwards hand-offs took 0.02 s. A server that lacks CPU time replies late to all its clients, so
// do not combine such crowds with TTLs of a few seconds.
//
// # Rights
//
// With authentication on, create a user for this package alone:
//
//	etcdctl role add locks
//	etcdctl role grant-permission --prefix locks readwrite holdfast/
//	etcdctl user add locks
//	etcdctl user grant-role locks locks
//
// Logins are renewed when they expire and after changes of users and roles. If the rights are revoked, calls
// fail with an error that says so.
//
// # Members
//
// Name all servers in the URL. Calls are spread over them, and a call that failed is repeated at another
// server. A server that hangs without closing its connections costs its callers two seconds; then its
// connection is closed, and the server is not used until it answers. A server that was down is tried once a
// second and used as soon as it is back. (A client passed to [New] has its own settings: by default the
// interval of gRPC grows to two minutes.)
//
// # Compaction
//
// Each write leaves a revision behind until etcd compacts it. Let etcd do that by itself and often, for example
// with --auto-compaction-retention=5m, or its database fills up.
package etcdstore

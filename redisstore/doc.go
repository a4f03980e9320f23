// Package redisstore keeps locks on Redis: a single server, Sentinel, or Cluster. Importing
// it registers these URLs:
//
//	redis://[USER:PASSWORD@]HOST[:PORT][/DB]
//	redis+sentinel://[USER:PASSWORD@]HOST[:PORT],…/MASTERNAME[/DB]
//	redis+cluster://[USER:PASSWORD@]HOST[:PORT],…
//	quorum+redis://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],…  see package quorum
//
// With rediss instead of redis, all connections use TLS. Parameters, after a question mark:
//
//	replicas=N                      a grant counts only when N replicas have it; not for a quorum
//	timeout=500ms, restart=30s      quorum only: limit of a call to a node, and how long a restarted one is excluded
//	ca=FILE, cert=FILE, key=FILE    TLS: authorities, client certificate and its key, in PEM
//	servername=NAME                 TLS: the name in the server's certificate
//	sentinel-user=, sentinel-password=   login for the Sentinels, if they require one
//
// The client's certificate and key are read again for each new connection, so they can be replaced while a
// program runs. The file ca is read once.
//
// A program that already has a rueidis client passes it to [New]. One that has a go-redis client uses package
// goredis.
//
// # What Redis promises
//
// On one server, locks exclude each other between all clients, in every mode, and waiters are served in order
// of arrival. A name never has two live grants that exclude each other if
//
//   - the server keeps its data for at least a TTL. A restart without an append-only file loses it, and so does
//     a power cut before the file is written to disk;
//   - it evicts nothing: maxmemory-policy noeviction. The volatile policies evict locks, because locks have a
//     TTL;
//   - its wall clock is not changed by more than a lease's margin: a twentieth of its TTL, and at most a
//     second. If the clock is set forward, grants end early; if it is set back, they last longer.
//
// With replicas (Sentinel, Cluster) that is not enough. Replication is asynchronous, and a failover may
// promote a replica that has not received a grant. Then two clients can hold the same lock until the lease of
// the first one ends. Two things help:
//
//   - replicas=N waits until N replicas have a grant, a renewal, or the record that Once or MinHold leaves.
//     The call fails if the replicas are late. It costs a round trip to the replicas, and a connection during
//     that time.
//   - Tokens. A new primary grants higher tokens than the old one, so a resource that checks tokens refuses
//     the older holder: see [Fenced], and package fence.
//
// Set N to the number of all replicas (on a Cluster, those of one shard). Then a promoted replica has every
// grant and renewal that a client believes in, also in a planned failover: "SENTINEL FAILOVER" promotes a
// replica before it demotes the old primary, and both grant locks meanwhile, but the promoted replica no
// longer confirms the grants of the old primary, so these calls fail. The price: no lock is granted or
// renewed while a replica is down or does not follow the new primary yet. Two cases remain. A primary that
// restarts without its data passes the loss on to its replicas, and a replica that has lost its data may be
// promoted if the primary fails at the same time. And the clock of the promoted replica may be ahead of that
// of the old primary by more than a lease's margin.
//
// If N is less, a failover may promote a replica that has not confirmed a grant, and during a planned one the
// other replicas still confirm grants of the old primary. If N is 0, a failover may lose the grants of the
// last milliseconds, and a planned one also those until the old primary is demoted, which may take a second.
// Then two clients hold the lock until the first one learns by its next renewal that its grant is gone, or
// its lease ends. Releases never wait for replicas: if one is lost, the name is free when the TTL ends.
//
// On a Cluster, leave four times cluster-node-timeout (a minute by default) between two planned failovers
// ("CLUSTER FAILOVER") to the same node. Otherwise, Redis 7.0 may promote it with the votes of the first one,
// before the primary has stopped, and both grant locks for a moment.
//
// If you need exclusion through failovers, use etcd or ZooKeeper, or a quorum of independent servers.
//
// # Tokens
//
// A token comes from a counter on the server. There is one counter for all names (on a Cluster, one for each
// of 1024 groups of names). It is set to the server's clock in microseconds whenever it is more than 1 ms
// behind, and runs ahead of the clock by at most 4 ms. So tokens also grow after data was lost, and after a
// failover to a replica that lags behind, except if a clock was set back before data was lost, or if the
// clock of the new primary is behind that of the old one by more than the failover took. Tokens stay below
// 2^53 until the year 2255.
//
// In a planned failover, both servers grant locks for a moment. Tokens that they grant within 5 ms of each
// other, plus the difference of their clocks, may be equal or in the wrong order.
//
// # Waiting
//
// The script that releases a name grants it to the first waiter, records the grant, and then publishes it to
// a channel of the waiter's process: one message to the server and one to the waiter. Such a grant lasts for
// one heartbeat of 5 s or the waiter's TTL, whichever is shorter, until the waiter renews it. A waiter asks
// again by itself about twice in a heartbeat, in case a message is lost. A waiter that is dead or suspended
// delays the next one by one heartbeat at most.
//
// A program whose user has no right to subscribe still gets its locks, but only by polling. One EventError
// reports that.
//
// # Full servers and migrating slots
//
// At maxmemory with noeviction, new locks and new waiters are refused. Calls that extend or end a lock work: a
// renewal, a release, a waiter that asks again or leaves, and the grant to the next waiter.
//
// While a slot of a Cluster migrates, the server refuses scripts with several keys with TRYAGAIN unless it
// has all of them. An exclusive lease is renewed nevertheless, by a script with one key. All other calls for
// names of that slot are repeated until their context ends, and leave the lock unchanged until then. A shared
// lease or a semaphore's is lost if its slot takes longer to move than its TTL.
//
// # Requests that arrive late
//
// A request without a reply may still be in flight when its connection is closed. If the network or a proxy
// delivers it after the request that undoes it, which uses another connection, or if its program has died, the
// name is held without a holder until the TTL of the request ends. A server that was only slow or stopped
// executes both in order.
//
// # Keys on the server
//
// Keys begin with "holdfast:". On a Cluster a tag such as {17} follows, which keeps all keys of a name in one
// slot. To inspect them:
//
//	LRANGE holdfast:lock:NAME 0 -1   P<id> owner meta since tokens token, if it has one exclusive
//	                                 holder and no waiters; otherwise S and a summary
//	LRANGE holdfast:queue:NAME 0 -1  the waiters in order
//	HGETALL holdfast:records:NAME    w<id> the waiters, h<id> holders that are not exclusive
//	ZRANGE holdfast:ends:NAME 0 -1 WITHSCORES    when the grants of such holders end, in ms
//	GET holdfast:token               the last token given
//
// Or use "holdfast ls" and "holdfast show NAME". All keys except the counter, and those of [Fenced], expire at the
// latest after the last call for the name plus 1.25 times the TTL or the heartbeat, whichever is longer. A record
// that Once or MinHold leaves expires after 1.1 times the time for which it closes the name.
//
// # Rights
//
// To create a user for this package alone, in redis-cli or in an ACL file:
//
//	ACL SETUSER locks on >PASSWORD ~holdfast:* &holdfast:* -@all +evalsha +eval +get +set +incrby
//	  +del +rpush +rpop +lpop +lindex +llen +lpos +lrange +lset +lrem +pttl +pexpire +pexpireat
//	  +time +hget +hset +hdel +hexists +zadd +zrem +zrange +zrangebyscore +publish
//	  +spublish +subscribe +unsubscribe +ssubscribe +sunsubscribe +scan +ping +hello +auth
//	  +select +role
//
// Add +wait for replicas=N, and +cluster|slots +cluster|shards +asking on a Cluster. CONFIG, FUNCTION and
// CLIENT are not needed. [Fenced] needs the rights for the keys and commands that are passed to it.
//
// For "holdfast doctor", add +info +config|get +slowlog|get and, on a Cluster, +cluster|info: without them
// it reports the values that it cannot read as unknown. CONFIG GET can read passwords, so give these rights
// to a separate user for doctor.
//
// # TTL
//
// A lease is lost if its server does not reply for the TTL minus the margin. Choose a TTL that is longer than
// your server may be unavailable (a failover takes some seconds), and short enough to wait for after a holder
// crashed: 10 to 60 seconds suit most programs.
package redisstore

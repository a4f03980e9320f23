// Package mysqlstore keeps locks in a MySQL or MariaDB database, for programs that run a database
// and want no other server. Importing the package registers the scheme "mysql":
//
//	c, err := holdfast.Open(ctx, "mysql://app:secret@db.example.com:3306/locks")
//
//	s, err := mysqlstore.New(db) // an existing *sql.DB of github.com/go-sql-driver/mysql
//	c, err := holdfast.New(s)
//
// It needs MariaDB 10.6 or later, and is tested on 10.11. It uses only features that MySQL 8 has
// too, but it was not run on MySQL.
//
// # Do you need a lock?
//
// If everything that you protect is in this one database, a lock that can be lost adds nothing to a
// unique row ("one registration per phone number": insert, and treat a duplicate-key error as "already
// there"), an optimistic version (UPDATE … SET version = version + 1 WHERE id = ? AND version = ?), or
// SELECT … FOR UPDATE for work of milliseconds within one transaction.
//
// Use a lock of this package for work outside of the database or longer than a transaction: calls
// to other services, files, jobs, leaders. To keep a holder that was paused from writing after its
// lease, check its token with package sqlfence in the transaction that writes.
//
// GET_LOCK, the lock function of the server, is bound to a connection. It is lost with the connection, and
// the holder is not told. It has no token and does not work with Galera, and each waiter needs a connection.
//
// # What it promises
//
// Locks exclude each other between all programs that use the same tables, in every mode, in order
// of arrival, with tokens. They survive the end of every program and a restart of the server. Two
// grants of one name are never alive at once under these assumptions:
//
//   - All programs write to one server, the primary, and it keeps the transactions that it has
//     committed: innodb_flush_log_at_trx_commit is 1, and sync_binlog too if there are replicas.
//     Otherwise a power cut loses the newest grants.
//   - The server's clock is not set forward while locks are held, because that ends grants early by
//     the same time. Setting it back makes dead grants last longer. Tokens grow either way.
//   - Each connection is a session of its own. A proxy that shares sessions between clients
//     (multiplexing) does not work.
//   - Nobody changes the tables by other means. Reading them is safe.
//
// Failover to a replica loses the grants that it did not have yet: with asynchronous replication
// two holders are possible for up to a TTL, and tokens make that harmless where they are checked.
// Tokens still grow, unless the clock of the new primary is behind that of the old one. With
// semi-synchronous replication that waits for a replica (rpl_semi_sync_master_wait_point=AFTER_SYNC and a
// long timeout) a committed grant is at a replica.
//
// Group replication and Galera: let all programs use one member. Then everything above holds, and a
// failover keeps grants if the new member has applied all transactions
// (group_replication_consistency=BEFORE_ON_PRIMARY_FAILOVER; wsrep_sync_wait=15). With programs
// at several members, commits fail as deadlocks, and waiters are not served in order.
//
// # Requests that arrive late
//
// A request without a reply may still be in flight, for example to a server that hangs. The call that
// undoes it or releases its grant leaves a record for a minute, and so does every Break: the request is not
// granted within that time. If it arrives later, or if its program has died, the name may stay locked,
// without a holder that knows of it, until the TTL of the request ends.
//
// # Time and tokens
//
// All times are the server's. Time zones, session settings and the clocks of clients do not matter.
//
// A token is about the time of its grant in microseconds since 1970, below 2^53 until the year 2255, and
// greater than all earlier tokens of its name. The row of a name keeps its last token for some seconds
// after the release, until the floor for new rows is above it, so tokens grow even if the clock is set
// back afterwards. If the tables are lost, tokens continue from the clock.
//
// # Waiting
//
// MySQL cannot notify a client, so a store with waiters polls, with one statement for all waiters
// that are due. The first waiter polls every 2 ms, the others less often. All of them slow down while
// the queue does not move. A waiter learns of its turn after about a sixteenth of the time that it has
// had its place, and after two and a half seconds at most.
//
// A waiter that dies keeps its place for five seconds. Waiters that only keep their places do not delay
// the renewals of the holder. A call on a contended name reads all its waiters: hundreds of waiting
// processes on one name are fine, thousands are not.
//
// # Connections
//
// A store uses at most two connections, one for calls that take names and one for calls that
// renew or release them. Calls that arrive while a connection is in use share a statement or a
// transaction. If the context of a call ends, its statements in flight have 100 ms to complete. Then the
// connection is closed, and the next call opens another. A user with MAX_USER_CONNECTIONS needs two
// connections for each program, and those of the application.
//
// Connections that are not in use are closed after 15 seconds. If the application uses up its pool after
// that, calls fail, with an error that says so, and a lease that is not renewed until its deadline is
// lost. Leases with a TTL of up to 40 seconds keep the connection that renews them.
//
// The settings of a *sql.DB do not matter: a connection gets a session of its own (the database that
// New found, autocommit, READ COMMITTED, so that no locks on gaps between rows are taken) and is closed
// instead of being returned to the pool. Only the session variable timestamp must not be set, because it
// stops the clock. binlog_format=STATEMENT does not work with that isolation level: use ROW or MIXED.
//
// Taking a free name is one statement and one round trip, and so is releasing it. If one of several
// names is not free, the statement fails in the server with error 1690, which callers do not see.
//
// Calls on a contended name need a transaction of some round trips, unless they are refused without a
// place in the queue, or only keep their place. A client that is stopped within one keeps the rows of its
// names locked until the server ends its connection, after 20 seconds. Calls on those names fail
// meanwhile, with an error that says so, and waiters that have to be granted or removed may lose their
// places. Every five seconds, one of these calls waits a full second for the row. That delays the calls and
// renewals of other names in the same transaction by a second. Use a TTL of several seconds, so that this
// costs no other lease.
//
// While a backup locks the tables, no lease can be renewed, and those whose TTL ends are lost. FLUSH TABLES
// WITH READ LOCK locks them, and so does mysqldump unless it is called with --single-transaction.
//
// # Tables and rights
//
// New and Open create the tables holdfast_names, holdfast_claims and holdfast_meta if they do not
// exist. With create=false in the URL, or [NoCreate], they return an error instead: create them
// with [Migrate], with holdfast migrate, or run the output of holdfast schema. Programs that are running
// remove the rows of released names after ten to thirty seconds; without one, rows stay until the next
// program takes a lock. A program needs these rights:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON `locks`.`holdfast_names` TO 'app'@'%';
//	GRANT SELECT, INSERT, UPDATE, DELETE ON `locks`.`holdfast_claims` TO 'app'@'%';
//	GRANT SELECT, UPDATE (low, swept) ON `locks`.`holdfast_meta` TO 'app'@'%';
//
// The tables have a version. A program continues to work with tables of a later version that only adds to
// them. A later version that is not compatible says so in the tables first: older programs stop granting
// locks within two seconds, and only then does the migration continue. So programs of both versions never
// hold one name at the same time.
//
// # URL
//
//	mysql://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE[?PARAMETERS]
//
// Parameters: prefix=NAME (of the tables, instead of holdfast_), create=false, tls=true, and ca=FILE,
// cert=FILE, key=FILE and servername=NAME, which turn TLS on. With TLS, the certificate of the server is
// always checked. The client's certificate and key are read again for each new connection, so they can be
// replaced while a program runs. The file ca is read once. Names have at most 512 bytes, and are compared
// byte by byte.
package mysqlstore

// Package pgstore keeps locks in a PostgreSQL database, for programs that have a database anyway
// and do not want another server for locks. It needs PostgreSQL 12 or later. It is tested with
// version 15.
//
//	import _ "github.com/holdfast-lock/holdfast/pgstore"
//
//	c, err := holdfast.Open(ctx, "postgres://user:password@host:5432/database")
//
// Programs with a pool of connections of their own use [New]. For data of the same database that is
// written in one transaction, see [LockTx], and the section "Databases without locks" below.
//
// # What it promises
//
// Locks exclude each other between all programs that use the same schema of the same database, in
// every mode, in order of arrival, with tokens. A grant is a row with an end time, by the clock
// of the database. Two grants of one name are never alive at once under these assumptions:
//
//   - There is one primary, and all programs use it. If you name several hosts in the URL, the
//     store looks for the primary.
//   - Commits survive a crash: fsync and full_page_writes are on. Otherwise a crash may lose grants.
//     The functions of the store wait for the disk even if synchronous_commit is off for the session.
//   - After a failover the new primary has all commits that the old one confirmed: replication
//     is synchronous (synchronous_standby_names is set, and synchronous_commit is not
//     remote_write). A replica that follows asynchronously may lack the newest grants, and then
//     grants the name again while the lease of the old holder is still valid. The same happens if
//     an administrator cancels a statement that waits for a replica (pg_cancel_backend): the server
//     then reports success.
//   - The clock of the server is not set forward while locks are held, and the clocks of primary and
//     replica agree. A step forward ends grants earlier by that time, and two clients can then hold a
//     lock until the deadline of the first. A step back makes dead grants last longer.
//   - Transactions have the default isolation level, read committed. Open, New and calls fail otherwise.
//   - client_encoding is UTF8, the default, and is not changed later. Open and New fail otherwise.
//
// If an assumption is violated, tokens still grow, and a resource that checks them (package
// fence/sqlfence) refuses the older holder.
//
// # Requests that arrive late
//
// A request without a reply may still be in flight, for example to a server that hangs. The call
// that undoes it or releases its grant leaves a record for a minute, and so does every Break. A request
// that arrives within that time is not granted. If it arrives even later, or if its program has died,
// the name may be held without a holder until the TTL of the request ends.
//
// # Tokens
//
// A token is the time of its grant in microseconds since 1970, or the last token of that name plus
// one, whichever is higher, and below 2^53 until the year 2255. So tokens grow even if the server
// restarts, the clock is set back, or rows are removed, for which the schema keeps a floor. They also
// grow after a loss of data, such as a failover to an old replica or a backup that is restored, unless
// the clock is behind at that time, or the tokens of a name are ahead of it: because of a floor, or
// because a program that uses the store directly reserves more than a million of them a second.
//
// # Cost
//
// An acquire is one round trip and one transaction, and so is a release. Concurrent calls of one store
// share a statement. Each call updates one row in place (a HOT update), which leaves no work for
// vacuum. A release does not wait for the disk: if the server crashes right after it, the lock is
// held until its TTL ends. Grants and renewals do wait for the disk. Rows of names that are no longer
// used are removed after some seconds, along with other calls.
//
// While a transaction of the same database keeps a snapshot (pg_dump, a long report, a forgotten
// BEGIN, a replication slot), the server must keep all versions of updated rows, and a name that is
// locked thousands of times a second gets ten times slower within seconds. If hot names and long reports
// meet, keep the locks in a database of their own. "holdfast doctor" warns of old snapshots.
//
// # Connections
//
// A store has a pool of up to four connections of its own (pool_max_conns in the URL changes that), also
// if New made it, with the configuration of a given pool. While a call waits for a lock, and for 30
// seconds after that, it has one more connection, to listen.
//
// Another session may lock the row of a name, such as a forgotten transaction in psql. Calls for that name
// fail after about two seconds, with an error that says so, and the lease of its holder is lost if the
// row stays locked until the deadline. Calls for other names continue.
//
// A firewall or a failover may leave idle connections on which nothing arrives. The pool tests a connection
// that was idle for a second, for 1.5 seconds at most (pool_ping_timeout in the URL changes that).
//
// # Waiting
//
// A waiter is woken by NOTIFY, on a channel of its client. A release without waiters sends no
// notification, because NOTIFY takes a lock of the whole server at commit. In case a notification is lost,
// a waiter also asks every two seconds. If it dies, it keeps its place for five seconds. If the connection
// that listens breaks, waiters poll until there is a new one: the next one of each name every 50
// milliseconds, the second one every 100, and so on.
//
// PostgreSQL wakes every connection that listens in a database for each notification, on any channel: on a
// busy machine with two cores a hand-off took 2 ms between two clients, and 5 ms between 64.
//
// The queue is in an unlogged table: a crash or failover empties it, and waiters queue again.
//
// # Poolers
//
// The store works behind PgBouncer and other poolers, in session and transaction mode. It notices a pooler
// by the process number that the server reports. Then it logs one line, does not use prepared statements,
// does not listen, and lets waiters poll as above. A hand-off takes some 50 milliseconds.
//
// # Schema and rights
//
// The tables and functions live in the schema "holdfast", or another (schema=NAME in the URL, or
// [InSchema]). The first Open or New creates them if the role may create a schema. With
// create=false in the URL, or [NoCreate], it does not. Otherwise run "holdfast migrate", call
// [Migrate], or let an administrator run the output of "holdfast schema".
//
// A role that locks needs only these rights, and can do nothing else to the tables:
//
//	GRANT USAGE ON SCHEMA holdfast TO app;
//	GRANT EXECUTE ON FUNCTION holdfast.acquire_v1 TO app;
//	GRANT EXECUTE ON FUNCTION holdfast.release_v1 TO app;
//	GRANT EXECUTE ON FUNCTION holdfast.one_v1 TO app;
//	GRANT EXECUTE ON FUNCTION holdfast.call_v1 TO app;
//	GRANT EXECUTE ON FUNCTION holdfast.list_v1 TO app;
//	GRANT EXECUTE ON FUNCTION holdfast.version_v1 TO app;
//
// The functions run with the rights of their owner. A role with these rights can break the locks
// of others, as every user of a lock can.
//
// Programs call functions whose names end in the version of the schema. A later version keeps the
// functions of the version before it, rewritten for its own tables. So programs of two versions exclude
// each other during and after a migration. A program whose version is no longer served gets an error that
// says so. Open never changes a schema that exists; only Migrate does.
//
// # URLs
//
// URLs are read by pgx, with these parameters: application_name, connect_timeout, options,
// target_session_attrs, host, port, passfile, service, servicefile, sslmode, sslrootcert, sslcert,
// sslkey, sslpassword, sslsni, sslnegotiation, and those of pools that start with pool_. In
// addition there are schema and create. Passwords belong before the host, into PGPASSWORD or into
// a password file.
//
// # Databases without locks
//
// Three ways that every database has are often enough, and need no lock:
//
//   - A unique row. "One registration per phone number", "one order per request": a UNIQUE
//     constraint and INSERT … ON CONFLICT DO NOTHING. The database decides who was first,
//     permanently and without a TTL.
//   - An optimistic version. "Change the row that I have read, unless another client changed
//     it": UPDATE … SET version = version + 1 WHERE id = $1 AND version = $2, and try again if no
//     row was changed. This is good if conflicts are rare. A fencing token is such a version,
//     checked by the resource: package fence/sqlfence.
//   - A pessimistic lock. SELECT … FOR UPDATE of the row, or [LockTx] if there is no row yet or the
//     lock covers many rows. It is held until the end of the transaction. This is good if conflicts are
//     frequent and the work is short and in this database.
//
// Use a lease of this store for work that lasts longer than a transaction should, or that is not in
// the database: jobs, files, calls to other services.
package pgstore

// Package sqlitestore keeps locks in an SQLite file on this host. It needs no server.
// Importing the package registers the scheme "sqlite:PATH".
//
//	c, err := holdfast.Open(ctx, "sqlite:/var/lib/myapp/locks.db")
//
// # What it promises
//
// Locks exclude each other between all processes of one host that open the same file, in
// every mode, in order of arrival, with tokens. They survive the end of every process: a
// grant lasts until its TTL is over, and tokens go on growing. They do not reach another
// host. Two grants of one name are never alive at once under these assumptions:
//
//   - All users of the file are on one host and one kernel. File systems that several hosts
//     share are refused on Linux (NFS, SMB, CephFS and others, and all of FUSE, which
//     includes sshfs and virtiofs); on other systems it is up to you. Overlayfs is fine for
//     processes of one container; two containers have a file each, unless it is on a
//     volume.
//   - Nobody removes or replaces the file while it is in use. If somebody does, renewals
//     fail from then on, and other calls within ten milliseconds; but whoever opens the
//     path in the meantime knows nothing of the locks in the old file. Removing only the
//     -wal or -shm file beside it is not noticed.
//   - No program that uses the file opens it by other means in the same process, such as
//     to copy it or with another SQLite library: closing it would drop the locks of
//     SQLite itself, which POSIX keeps per process.
//   - The clock is not set, on systems other than Linux (see below).
//
// # Time
//
// On Linux time is the kernel's CLOCK_MONOTONIC: one clock for all processes, containers
// and time namespaces, which nobody can set. Go's timers use it too, so that a lease ends
// for its holder and in the file by the same clock, even if the machine sleeps in between.
//
// The clock restarts with every boot, and the grants in the file end then, since their
// holders are gone. A new boot id does not show a reboot: containers of LXC and
// systemd-nspawn have one each. A clock that is behind the file's last use does, and then
// all grants end as soon as the file is opened. If the machine has already been up for
// longer than it was at the file's last use, a reboot cannot be told from a second
// container. Then grants keep the rest of their time: they end within their TTL and one
// second after the file is opened. After either, closures (Once, MinHold) last until their
// end on the wall clock; if that is set forward meanwhile, they end early.
//
// Elsewhere time is the wall clock. Setting it forward ends grants early, by as much: two
// can hold a lock then. Setting it back makes dead grants last longer. Tokens grow either
// way. The wall clock runs on while the machine sleeps, and timers do not: after waking up,
// a holder may believe in its lease for up to its TTL although it is over.
//
// # Tokens
//
// A token is about the time of its grant in microseconds since 1970, so it is below 2^53
// until the year 2255. Tokens grow for all names together. They grow over the end of all
// processes, a reboot with the wall clock set back, and a power cut (but not a power cut
// with the wall clock set back). If the file is deleted, they go on from the wall clock,
// which is ahead of all tokens of before unless it was set back or a high floor was asked
// for.
//
// # Waiting
//
// A waiter is woken by a datagram from the process that lets it in: to an abstract socket on
// Linux, to a port of the loopback interface elsewhere. Both end with their process, need no
// file, and cost nothing while nobody comes. A store listens, with one goroutine, while
// somebody waits and for up to four seconds after. Processes that cannot reach each other
// so, such as containers with networks of their own that share a volume, are served too,
// but up to two thirds of a second later, when the waiter asks by itself. A waiter that
// dies keeps its place for two seconds.
//
// # Limits
//
// SQLite has one writer at a time. A process that is stopped in the middle of a transaction
// (SIGSTOP, a debugger) makes all others wait until it goes on or is killed; their calls end
// with their contexts, and leases that cannot be renewed are lost. Transactions take some
// ten microseconds, and up to some ten milliseconds when a checkpoint writes the log into
// the file, once in 16 MiB.
//
// A commit does not wait for the disk. A power cut may lose the newest commits but does not
// damage the file: grants of before are void anyway, closures of the last seconds may be
// forgotten.
//
// The file is made for its user only (mode 0600); to share it between users, create it
// empty beforehand with other permissions, in a directory that all of them can write to.
// What is released leaves nothing in it. It does not shrink: it is as big as the most that
// was held at one time, about 100 bytes a name.
//
// The resource's side of tokens, for databases: package fence/sqlfence.
package sqlitestore

// Package sqlitestore keeps locks in an SQLite file on this host. It needs no server.
// Importing the package registers the URL scheme "sqlite:PATH".
//
//	c, err := holdfast.Open(ctx, "sqlite:/var/lib/myapp/locks.db")
//
// # Guarantees
//
// Locks exclude each other between all processes of one host that open the same file, and do not reach
// other hosts. All modes, waiting in order of arrival, and fencing tokens are supported. Locks survive
// the end of every process: a grant lasts until its TTL ends, and tokens keep growing.
//
// Two grants of one name are never live at the same time under these assumptions:
//
//   - All users of the file run on one host, under one kernel. On Linux, Open refuses file
//     systems that several hosts share: NFS, SMB, CephFS and others, and all of FUSE, which
//     includes sshfs and virtiofs. On other systems you have to check this yourself. Overlayfs
//     works for the processes of one container; two containers have separate files unless the
//     file is on a volume.
//   - The file is not removed or replaced while it is in use. If it is, renewals fail from then
//     on, and other calls fail within ten milliseconds, except releases, which may succeed in the
//     old file. But a process that opens the path in the meantime does not see the locks in the old
//     file. Open refuses a path whose file was removed while the -wal file beside it is still
//     there. Removing only the -wal or -shm file is not detected.
//   - No program that uses the file opens it by other means in the same process, for example to copy
//     it or with another SQLite library: closing such a descriptor drops the locks that SQLite holds,
//     because POSIX locks belong to the process.
//   - On systems other than Linux, the clock is not set (see below).
//
// # Time
//
// On Linux the store uses the kernel's CLOCK_MONOTONIC, which cannot be set and is the same for all
// processes, containers and time namespaces. Go's timers use it too, so a lease ends for its holder and
// in the file by the same clock, even if the machine is suspended in between.
//
// The monotonic clock restarts at every boot. Grants of an earlier boot are void, since their
// holders are gone. A new boot ID does not prove a reboot, because LXC and systemd-nspawn give
// each container its own. A clock that is behind the file's last use does prove it, and all
// grants end when the file is opened. If the machine has already been up for longer than it was
// at the file's last use, a reboot cannot be distinguished from a second container. In that case
// grants keep their remaining time, and end at most their TTL plus one second after the file is
// opened. In both cases kept records (Once, MinHold) last until their end on the wall clock; if
// the wall clock was set forward meanwhile, they end early.
//
// On other systems the store uses the wall clock. If it is set forward, grants end early by that
// time, and two holders are possible. If it is set back, grants of dead holders last longer.
// Tokens grow in either case. The wall clock continues while the machine is suspended, but timers
// do not: after a resume, a holder may treat an expired lease as valid for up to its TTL.
//
// # Tokens
//
// A token is roughly the time of its grant in microseconds since 1970. It stays below 2^53
// until the year 2255. Tokens grow across all names, also after the end of all processes, after a reboot
// even if the wall clock was set back, and after a power cut unless the wall clock was set back as well.
// If the file is deleted, tokens continue from the wall clock. That is above all earlier tokens unless
// the wall clock was set back or a request had a high floor.
//
// # Waiting
//
// The process that releases a name wakes the next waiter with a datagram: to an abstract Unix
// socket on Linux, to a loopback UDP port on other systems. Neither needs a file, and both
// disappear with their process. A store listens, with one goroutine, while it has waiters and
// for up to two seconds after that. Processes that cannot reach each other in this way, such
// as containers that share a volume but have separate networks, still get their turn: waiters
// also ask on their own, at least every two thirds of a second. A waiter that dies keeps its
// place for two seconds.
//
// # Limits
//
// SQLite has one writer at a time. A process that is stopped in the middle of a transaction
// (SIGSTOP, a debugger) blocks all others until it continues or is killed. Their calls end with
// their contexts, and leases that cannot be renewed are lost. A transaction takes tens of
// microseconds, and up to tens of milliseconds when a checkpoint copies the log (the -wal file) into
// the file, which happens once per 16 MiB. With several busy processes the log becomes about twice
// as long, and is cut back to 16 MiB while they run. On a file system with less than 128 MiB of free
// space when the file is opened, the log has an eighth of that space, but at least 256 KiB.
//
// A name may have thousands of shared holders. A request for permits sums up the permits of all
// holders of the name, which takes about 0.2 ms for 2,000 holders. Transactions take further calls
// for at most 5 ms, so other names are served in between.
//
// When the disk is full, the store reuses the log that it has, and continues to work as long as the
// file does not have to grow for more names. After that all calls fail until there is space again,
// because the log cannot be copied into the file: leases are lost at their deadline, and their names are
// free after the TTL.
//
// A commit does not wait for the disk. A power cut does not damage the file, but may lose the newest
// commits. Grants are void after a power cut anyway; kept records of the last seconds may be lost.
//
// Open creates the file for its user only (mode 0600). To share it between users, give them a group,
// and a directory with the setgid bit. Without that bit the -wal and -shm files, which SQLite creates
// beside the file, get the primary group of the first user, and the others are refused:
//
//	install -d -m 2770 -g locks /var/lib/locks
//	install -m 0660 -g locks /dev/null /var/lib/locks/locks.db
//
// Released names leave nothing in the file. The file does not shrink: its size is that of the
// largest number of names held at one time, about 100 bytes per name.
//
// To check tokens in a database, see package fence/sqlfence.
package sqlitestore

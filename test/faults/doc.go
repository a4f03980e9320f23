// Package faults tests locks while servers, networks and processes fail. Its tests kill, stop and
// cut off real servers and real processes, record what every client observed, and check the
// record:
//
//   - P: the history is possible for a mutex with fencing tokens ([History.CheckMutex]).
//   - O: no two holders had live leases of a name at the same time ([History.CheckOverlap]).
//   - T: later holders have higher tokens ([History.CheckTokens]).
//   - R: a resource that checks tokens loses no update ([CheckLog]).
//   - K: nothing is left behind: no key but the counter of tokens, no connection, no
//     goroutine ([Leftover] finds the goroutines).
//   - L: every waiter gets the lock in bounded time after the fault.
//
// TestHunt makes random calls in several processes under random faults, and checks these
// invariants:
//
//   - S1: exclusion, which is O, also while Once or MinHold keeps a name closed.
//   - S2: tokens rise from grant to grant, which is T ([History.TokensOutOfOrder]).
//   - S3: a resource that checks tokens accepts no older token, which is R.
//   - S4: nobody is granted a name before the deadline that its holder last knew.
//   - L1: after a fault, the rate of grants is soon back at half of what it was, or more.
//   - L2: nobody waits for a free name for longer than a TTL and a heartbeat.
//   - L3: a fault shorter than a third of the TTL costs no lease.
//   - L4: a fault of one process, name or member costs no lease of another.
//   - R1: nothing is left behind, which is K, and every key has an end.
//   - R2: waiters send few requests, measured on the servers of Redis and PostgreSQL.
//
// After the random faults of a hunt, it also causes some that need more time or long TTLs: calls that are
// cancelled soon, a hang while many leases are due for renewal, and rows that a stranger has locked.
//
// It can also run on other lock libraries, which are held to S1 and L1 only ([PeerPromises]).
//
// If a store has a documented weakness, the test demonstrates it, and R and T must still hold.
package faults

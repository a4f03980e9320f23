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
// If a store has a documented weakness, the test demonstrates it, and R and T must still hold.
package faults

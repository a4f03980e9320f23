// Package faults judges what locks did while everything around them failed. Its tests kill,
// stop and cut off real servers and real processes, record what every client saw, and check
// the record:
//
//   - P: it is one that a fenced mutex can produce ([History.CheckMutex]).
//   - O: no two holders believed at once that they hold a name ([History.CheckOverlap]).
//   - T: later holders have higher tokens ([History.CheckTokens]).
//   - R: a resource that checks tokens loses no update ([CheckLog]).
//   - K: nothing is left behind: no key but the counter of tokens, no connection, no
//     goroutine ([Leftover] finds the goroutines).
//   - L: whoever waits gets the lock in bounded time after the fault.
//
// Where a store has a weakness that its documentation admits, the test shows it, and R and T
// must still hold.
package faults

// Package holdfast provides distributed locks: one small API over the store that a program
// already uses. Every lock has a fencing token, a lease that renews itself, and a context
// that is cancelled before anyone else can get the lock.
//
//	c, err := holdfast.Open(ctx, "redis://127.0.0.1:6379")
//	...
//	err = c.Do(ctx, "order:42", func(ctx context.Context) error {
//		return charge(ctx, holdfast.TokenFrom(ctx))
//	})
//
// # What is promised
//
// Each promise holds under the assumptions that the package of the store lists.
//
//   - Exclusion: two grants of one name that exclude each other are never live at the same time.
//   - Loss is known in time: a lease ends for its holder at the send time of the last
//     successful call plus the TTL minus a margin, on the local monotonic clock, whatever the
//     network, the store or a hung call does. Done is then closed, and contexts made from the
//     lease are cancelled with a cause that matches ErrLost.
//   - Fencing: each grant has a token greater than every earlier one of that name.
//   - Calls are bound to the grant: no late or repeated unlock or renewal touches another holder.
//   - A lost reply is not treated as a failure: the call is retried under the same identity
//     or undone in the background, and nothing outlives its TTL.
//   - Waiting: waiters are served in order of arrival, across processes too if the store supports
//     that. They are woken by a push, backed by a bounded poll. A cancelled waiter leaves at once.
//   - Quiet: no goroutine per lease, no polling while a name is free, nothing left after Close.
//
// # What is not promised
//
// A holder that is paused (a stopped process, a suspended machine, a long garbage collection) and
// acts after its lease has ended does not know that. No lock can prevent it. Send [Lease.Token] to
// the resource and let the resource refuse lower tokens: package fence has the resource's side.
//
// The holder of a lease that is broken by force ([Client.Break]) learns it at its next renewal.
//
// # Errors
//
// Errors are tested with errors.Is. The comment of a method names only errors that are particular to
// it. Besides these, calls return:
//
//   - [ErrInvalid] for bad input, before the store is touched. It is also returned if the name is in use with
//     another limit, or by a newer version of Holdfast.
//   - [ErrUnsupported] if the store lacks a feature that the call or one of its options needs.
//   - [ErrUnavailable] if the store does not answer or fails.
//   - [ErrClosed] after [Client.Close].
//   - [ErrHeld] from calls that take a lock: if the lock is not free and the call makes a single
//     attempt, or if its wait ended first. The error wraps a [*HeldError], which says who holds the
//     lock. After a wait it also matches the cause of the context.
//   - [ErrWouldDeadlock] from calls that wait for a lock that their context already holds.
//   - [ErrLost] from calls on a lease that was lost, and [ErrNotHeld] if it was unlocked.
//
// # How a lock is held
//
// A lock belongs to its [Lease], not to a goroutine: any goroutine that has the Lease may unlock
// it. The context or [Wait] bounds how long a call waits. Only [MaxHold] bounds how long a lock is
// held: a lease renews itself until it is unlocked. The TTL bounds the wait after a crash.
//
// Goroutines that share a [Client] queue in memory, and hand a busy lock over without a round trip.
package holdfast

// Package holdfast is a distributed lock: one small API over the store that a program
// already has. Every lock has a fencing token, a lease that renews itself, and a context
// that is cancelled before the lock can be anyone else's.
//
//	c, err := holdfast.Open(ctx, "redis://127.0.0.1:6379")
//	...
//	err = c.Do(ctx, "order:42", func(ctx context.Context) error {
//		return charge(ctx, holdfast.TokenFrom(ctx))
//	})
//
// # What is promised
//
// Each holds under the assumptions that the package of the store lists.
//
//   - Exclusion: never two live grants of one name that exclude each other.
//   - Loss is known in time: a lease ends for its holder at the time of the last successful
//     call plus TTL less a margin, on the local monotonic clock, whatever the network, the
//     store or a hung call does. Done is closed then, and contexts made from the lease are
//     cancelled with a cause that matches ErrLost.
//   - Fencing: each grant has a token greater than every earlier one of that name.
//   - Calls are bound to the grant: a late or repeated unlock or renewal never touches
//     another holder.
//   - A lost reply is not treated as a failure: the call is retried under the same identity
//     or undone in the background, and nothing outlives its TTL.
//   - Waiting: in order of arrival, across processes too where the store can; woken, with a
//     bounded poll behind it; a cancelled waiter leaves at once.
//   - Quiet: no goroutine per lease, no polling while a name is free, nothing left after
//     Close.
//
// # What is not promised
//
// A holder that is paused (a stopped process, a suspended machine, a long garbage
// collection) and acts after its lease is over does so without knowing. No lock can prevent
// that. Give [Lease.Token] to the resource and let it refuse lower ones: package fence has
// the resource's side.
//
// A lease that is broken by force ([Client.Break]) learns of it at its next renewal.
//
// # How a lock is held
//
// The lease is the ownership: any goroutine that has the [Lease] may unlock it. The context or
// [Wait] bounds how long a call waits. Nothing bounds how long a lock is held: a lease renews
// itself until it is unlocked. The TTL only says how long others wait after a crash.
//
// Goroutines that share a [Client] queue in memory. One of them asks the store, and a busy lock
// passes from one to the next without a round trip.
package holdfast

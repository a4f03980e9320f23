// Package fence is the resource's side of fencing tokens: it refuses the writes of a holder after a newer
// holder has shown its token.
//
// No lock can stop a holder that is paused (by the garbage collector, a stopped virtual machine or a slow
// disk) until after the end of its lease and then continues to write. The holder does not know yet that it
// has lost the lock. Only the resource that it writes to can stop it. Every lease of a name has a token
// greater than all earlier ones. The holder sends its token with each write. The resource remembers the
// highest token it has seen, and refuses a lower one with [ErrStale].
//
// A [Gate] does this in memory for one resource, and [Gates] holds a gate for each of many resources.
// [Handler] puts gates in front of an HTTP handler. [Transport] sends the token of the lease that a request's
// context was derived from.
//
// # Limits
//
// Use a gate only for writes under an exclusive lease. Shared leases and permits are held at the same time
// with different tokens, so a gate would refuse the earlier of two valid holders.
//
// Tokens of two different names are not comparable. A resource that is guarded by two names needs a gate for
// each.
//
// A gate is in the memory of the process. A resource that outlives the process, such as a file or a table,
// must store its highest token with its data, in the same transaction, and call [Gate.Raise] with it at the
// start. If several processes serve one resource, the check must be made where the data is, for the same
// reason.
package fence

// Package fence is the resource's side of fencing tokens: it refuses the writes of a
// holder whose lease is over.
//
// No lock can stop a holder that is paused (by the garbage collector, by a stopped
// virtual machine, by a slow disk), sleeps through the end of its lease and then goes on
// writing: it does not know yet that it lost the lock, and nobody can reach it. What can
// stop it is the thing it writes to. Every grant of a name carries a token greater than
// all earlier ones; the holder sends its token along with each write, and the resource
// remembers the highest token it has seen and refuses a lower one with [ErrStale].
//
// A [Gate] is that memory for one resource in this process, and [Gates] keeps one for
// each of many. [Handler] puts them before an HTTP handler, and [Transport] sends the
// token of the lease that a request's context was made from.
//
// # What to know
//
// Tokens order leases that follow one another, which exclusive leases do. Shared leases
// and permits are held at the same time under different tokens: a gate would refuse the
// earlier of two rightful holders. Fence what is written under an exclusive lease.
//
// Tokens of two different names are not comparable. A resource that is guarded by two
// names needs a gate for each.
//
// The memory is the process's. A resource that outlives the process, such as a file or a
// table, keeps its highest token beside its data, written in the same transaction, and
// calls [Gate.Raise] with it at the start. Several processes that serve one resource need
// the check where the data is, for the same reason.
package fence

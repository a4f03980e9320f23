// Package otelholdfast reports what a Holdfast client does as OpenTelemetry metrics and spans.
//
//	observer, err := otelholdfast.New()
//	...
//	c, err := holdfast.Open(ctx, url, holdfast.WithObserver(observer.Observe))
//
// Without options it uses the global meter and tracer providers.
//
// # Metrics
//
//	holdfast.acquire.duration   histogram, s   how long acquiring calls took, with or without success
//	holdfast.hold.duration      histogram, s   how long leases were held
//	holdfast.held               up-down        leases held now
//	holdfast.waiting            up-down        calls that wait now, without candidates of Campaign
//	holdfast.standby            up-down        candidates of Campaign that wait until they lead
//	holdfast.renewals           counter        renewals, with their result
//	holdfast.renew.slack        histogram, 1   share of a lease that was left when its renewal was answered
//	holdfast.losses             counter        leases that ended before they were unlocked
//	holdfast.leaks              counter        leases that the program dropped without Unlock
//	holdfast.errors             counter        failed calls to the store while acquiring or releasing
//	holdfast.fence.rejections   counter        stale tokens that a resource refused; see Observer.Fence
//
// Attributes: holdfast.store (the kind of store), holdfast.mode (as it was acquired), holdfast.result
// (of an acquiring call: acquired, handed_over, done if Once found the work done, held, canceled,
// unavailable or error; of a renewal: ok or error), holdfast.end (released or lost) and holdfast.reason
// (of a loss: expired, gone or max_hold).
//
// The names of locks are not an attribute by default, because there may be any number of them: see
// [WithNames]. Counters of failures begin with 0 when a client first uses a store, so that alerts see
// the first failure. The program in examples/metrics serves all of this to Prometheus, with the names
// that the alert rules and the dashboard in deploy use.
//
// # Spans
//
// A span holdfast.acquire covers an acquiring call and a span holdfast.hold the time for which the
// lock was held. Both are children of the span in the context of the call, and have the name of the
// lock and its token as attributes.
package otelholdfast

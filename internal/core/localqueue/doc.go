// Package localqueue queues the goroutines of one client that want the same name.
//
// They are served in order of arrival, and at most one of them has the turn to talk to the
// store about the name. A grant that the client holds exclusively passes from one goroutine
// to the next without the store (hand-over).
package localqueue

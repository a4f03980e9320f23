// Package localqueue queues the goroutines of one client that want the same name.
//
// They are served in order of arrival, and at most one of them has the turn to talk to the store
// about the name. An exclusive grant passes from one to the next without the store (hand-over).
package localqueue

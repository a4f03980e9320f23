// Package clustertest runs the conformance suite on three etcd servers, with a client of the
// program's own. It is apart from the other tests so that they run at the same time.
package clustertest

// Package clustertest runs the conformance suite on three etcd servers, with a client that is passed to
// etcdstore.New. It is a separate package so that it runs at the same time as the other tests.
package clustertest

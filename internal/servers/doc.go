// Package servers starts real servers as child processes of a test.
//
// Every server has a folder and a port of its own, listens on 127.0.0.1 only and is gone
// when the test ends, however it ends. A server that is not installed fails the test: a
// skipped one would look green. Methods that cannot do what they are asked fail the test
// too, so they return nothing to check.
//
// What is common to all servers is in process.go; each kind of server has files that start
// with its name.
package servers

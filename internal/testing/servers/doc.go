// Package servers starts real servers as child processes of a test.
//
// Every server has its own folder and port, listens only on 127.0.0.1, and is stopped when the
// test ends in any way. If a server is not installed, the test fails: a skipped test would look
// like a passed one. Methods that fail also fail the test, so they return no error.
//
// The common part of all servers is in process.go. Each kind of server has files that start
// with its name.
package servers

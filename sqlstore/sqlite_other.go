//go:build !linux

package sqlstore

import (
	"net"
	"time"
)

// newSQLiteClock returns the wall clock: the one that all processes of a host share
// everywhere.
func newSQLiteClock() (sqliteClock, error) {
	wall := func() int64 { return time.Now().UnixNano() }
	return sqliteClock{boot: "wall", now: wall, wall: wall}, nil
}

// listenPush uses a port of the loopback interface.
func listenPush() (net.PacketConn, string, error) { return listenLoopback() }

// checkFS checks on Linux only: see the package comment.
func checkFS(_ string) error { return nil }

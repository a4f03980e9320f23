//go:build !linux

package sqlitestore

import (
	"net"
	"time"
)

// newClock returns the wall clock: the one that all processes of a host share
// everywhere.
func newClock() (clock, error) {
	wall := func() int64 { return time.Now().UnixNano() }
	return clock{boot: "wall", now: wall, wall: wall}, nil
}

// listenPush uses a port of the loopback interface.
func listenPush() (net.PacketConn, string, error) { return listenLoopback() }

// checkFS checks on Linux only: see the package comment.
func checkFS(_ string) error { return nil }

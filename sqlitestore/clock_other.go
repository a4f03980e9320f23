//go:build !linux

package sqlitestore

import (
	"net"
	"time"
)

// newClock returns the wall clock, the only clock that all processes of a host share on every
// system.
func newClock() (clock, error) {
	wall := func() int64 { return time.Now().UnixNano() }
	return clock{boot: "wall", now: wall, wall: wall}, nil
}

// listenPush listens on a loopback port.
func listenPush() (net.PacketConn, string, error) { return listenLoopback() }

// Package ports reserves TCP ports on the loopback interface for tests.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The range lies below the ephemeral ports of outgoing connections (from 32768 on Linux). Another program can
// take such a port while its server is down, and a client that dials it may connect to itself.
const (
	lowest  = 10000
	highest = 32000
	tries   = 1000
)

// Reserve returns a free port of 127.0.0.1, which no other test in any process gets until the test ends, even
// while no server listens. It binds the UDP port of the same number: that needs no file, and ends with the
// process.
func Reserve(t testing.TB) int {
	t.Helper()
	for range tries {
		port := lowest + rand.IntN(highest-lowest)
		if reservation := reserve(port); reservation != nil {
			t.Cleanup(func() { reservation.Close() })
			return port
		}
	}
	t.Fatalf("no free port on 127.0.0.1 in %d tries between %d and %d", tries, lowest, highest)
	return 0
}

// Addr returns the address of a port on the loopback interface.
func Addr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func reserve(port int) net.PacketConn {
	reservation, err := net.ListenPacket("udp4", Addr(port))
	if err != nil {
		return nil
	}
	probe, err := net.Listen("tcp4", Addr(port))
	if err != nil {
		reservation.Close()
		return nil
	}
	probe.Close()
	return reservation
}

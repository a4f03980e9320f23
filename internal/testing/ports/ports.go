// Package ports reserves TCP ports on the loopback interface for tests.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The range lies below the ephemeral ports of outgoing connections (from 32768 on Linux). An
// ephemeral port whose server is down can be taken by another program, and a client that dials
// it repeatedly may connect to itself.
const (
	lowest  = 10000
	highest = 32000
	tries   = 1000
)

// Reserve returns a free port of 127.0.0.1. It is reserved until the test ends, even while no
// server listens on it: no other test gets it, in this process or another.
//
// The reservation is made by binding the UDP port of the same number. It needs no file, and it
// ends with the process in every case.
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

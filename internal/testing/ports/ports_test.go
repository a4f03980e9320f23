package ports_test

import (
	"net"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

func TestPortIsNotReservedTwiceDuringATest(t *testing.T) {
	seen := make(map[int]bool)
	for range 200 {
		port := ports.Reserve(t)
		if seen[port] {
			t.Fatalf("port %d was reserved twice", port)
		}
		seen[port] = true
	}
}

func TestReservedPortCanBeListenedOnRepeatedly(t *testing.T) {
	addr := ports.Addr(ports.Reserve(t))
	for range 3 {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

func TestReservationEndsWithTheTest(t *testing.T) {
	var port int
	t.Run("holder", func(t *testing.T) {
		port = ports.Reserve(t)
		if l, err := net.ListenPacket("udp4", ports.Addr(port)); err == nil {
			l.Close()
			t.Error("the port could be reserved twice")
		}
	})
	l, err := net.ListenPacket("udp4", ports.Addr(port))
	if err != nil {
		t.Fatalf("still reserved: %v", err)
	}
	l.Close()
}

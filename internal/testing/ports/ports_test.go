package ports_test

import (
	"net"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

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

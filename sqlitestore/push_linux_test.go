package sqlitestore

import (
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// fullSocket returns a socket that takes no further datagram, and its address.
func fullSocket(t *testing.T) (net.PacketConn, string) {
	conn, addr, err := listenPush()
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	for push(addr, writePush("earlier", nil)) {
	}
	return conn, addr
}

// A process on a busy machine does not read its wake-ups at once.
func TestAPushWaitsForAProcessThatReadsLate(t *testing.T) {
	conn, addr := fullSocket(t)
	time.AfterFunc(10*time.Millisecond, func() {
		buf := make([]byte, 1000)
		for {
			if _, _, err := conn.ReadFrom(buf); err != nil {
				return
			}
		}
	})
	if !push(addr, writePush("name", nil)) {
		t.Errorf("a push is lost because nobody has read for %v", 10*time.Millisecond)
	}
}

func TestAProcessThatDoesNotReadDelaysACallOnce(t *testing.T) {
	_, addr := fullSocket(t)
	var wakes []wakeUp
	for range 20 {
		id := store.NewID()
		wakes = append(wakes, wakeUp{id.String(), id, addr})
	}
	begin := time.Now()
	new(pushes).send(wakes)
	if took := time.Since(begin); took > 10*sendTimeout {
		t.Errorf("wake-ups on %d names took %v, want about %v", len(wakes), took, sendTimeout)
	}
}

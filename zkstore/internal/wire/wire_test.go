package wire

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func dial(t *testing.T, addrs ...string) *Conn {
	t.Helper()
	c := Dial(Options{Servers: addrs, Timeout: 20 * time.Second, Session: func(int64, time.Duration) {}, Event: func(string, bool) {}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx, true)
	})
	return c
}

func TestAClientThatWasSlowItselfDoesNotLeaveItsServer(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	c := dial(t, server.Addr(), server.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	later := &Call{Op: Exists("/", false)}
	err := c.Do(ctx, &Call{Op: Exists("/", false), Then: func(*Call) {
		c.Send(later)
		time.Sleep(hangLimit + hangLimit/4) // nothing is read meanwhile
	}})
	if err != nil {
		t.Fatal(err)
	}
	if <-later.done; later.Err != nil {
		t.Errorf("the call in flight: %v", later.Err)
	}
}

func TestACallThatWasNotSentIsWithdrawn(t *testing.T) {
	c := dial(t, ports.Addr(ports.Reserve(t)))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	outcome := make(chan error, 1)
	if err := c.Do(ctx, &Call{Op: Sync("/"), Then: func(call *Call) { outcome <- call.Err }}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Do: %v", err)
	}
	if err := <-outcome; err != ErrNotSent {
		t.Errorf("outcome: %v", err)
	}
	if c.Failure() == nil {
		t.Error("Failure does not say why there is no connection")
	}
}

func TestAMalformedReplyIsAnError(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ops := []Op{
		Create("/a", nil, ACL{}, Container), Get("/a", false), Children("/a", false), Set("/a", nil, 0),
		Multi(Create("/a", nil, ACL{}, Container), Delete("/a", 0), Set("/a", nil, 0)),
	}
	for range 100_000 {
		frame := make([]byte, r.IntN(120))
		for i := range frame {
			frame[i] = []byte{0, 0, 1, 2, 15, 0xff, byte(r.IntN(256))}[r.IntN(7)]
		}
		call := &Call{Op: ops[r.IntN(len(ops))], done: make(chan struct{})}
		call.answered(0, &reader{b: frame})
		<-call.done
	}
	call := &Call{Op: ops[0], done: make(chan struct{})}
	if err := call.answered(0, &reader{b: []byte{0, 0, 0, 200}}); err != errReply || call.Err != ErrUnknown {
		t.Errorf("a result that is cut off: %v, %v", err, call.Err)
	}
}

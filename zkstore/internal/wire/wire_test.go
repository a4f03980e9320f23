package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/ports"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

var anyone = ACL{"world", "anyone"}

func dial(t *testing.T, opts Options) *Conn {
	t.Helper()
	if opts.Session == nil {
		opts.Session = func(int64, time.Duration) {}
	}
	opts.Timeout, opts.Event = 20*time.Second, func(string) {}
	c := Dial(opts)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx, true)
	})
	return c
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestTheClientOnARealServer(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	t.Run("replies and outcomes come in the order of the calls", func(t *testing.T) {
		c := dial(t, Options{Servers: []string{server.Addr()}})
		var calls []*Call
		var order []int
		for i := range 200 {
			calls = append(calls, &Call{
				Op:   Create(fmt.Sprint("/order", i), []byte{}, anyone, Ephemeral),
				Then: func(*Call) { order = append(order, i) },
			})
		}
		if err := c.Do(bounded(t), calls...); err != nil {
			t.Fatal(err)
		}
		for i, n := range order {
			if i != n || i > 0 && calls[i].Stat.Mzxid <= calls[i-1].Stat.Mzxid {
				t.Fatalf("outcome %d is that of call %d", i, n)
			}
		}
	})
	t.Run("all parts of a Multi are done or none", func(t *testing.T) {
		c := dial(t, Options{Servers: []string{server.Addr()}})
		call := &Call{Op: Multi(Create("/multi", nil, anyone, Ephemeral), Delete("/none", AnyVersion), Delete("/multi", AnyVersion))}
		if err := c.Do(bounded(t), call); err != ErrNoNode || len(call.Parts) != 3 || call.Parts[1].Err != ErrNoNode {
			t.Errorf("%v, %+v", err, call.Parts)
		}
		if err := c.Do(bounded(t), &Call{Op: Exists("/multi", false)}); err != ErrNoNode {
			t.Errorf("after a Multi that failed: %v", err)
		}
	})
	t.Run("a caller that gives up does not lose the outcome", func(t *testing.T) {
		proxy := faultproxy.Start(t, server.Addr())
		c := dial(t, Options{Servers: []string{proxy.Addr()}})
		if err := c.Do(bounded(t), &Call{Op: Exists("/", false)}); err != nil {
			t.Fatal(err)
		}
		proxy.ToClient.Hold()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		outcome := make(chan error, 1)
		err := c.Do(ctx, &Call{Op: Create("/late", nil, anyone, Ephemeral), Then: func(call *Call) { outcome <- call.Err }})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do: %v", err)
		}
		proxy.Heal()
		if err := <-outcome; err != nil {
			t.Errorf("outcome: %v", err)
		}
	})
	t.Run("a client that was slow itself does not leave its server", func(t *testing.T) {
		c := dial(t, Options{Servers: []string{server.Addr(), server.Addr()}})
		later := &Call{Op: Exists("/", false)}
		err := c.Do(bounded(t), &Call{Op: Exists("/", false), Then: func(*Call) {
			c.Send(later)
			time.Sleep(hangLimit + hangLimit/4) // nothing is read meanwhile
		}})
		if err != nil {
			t.Fatal(err)
		}
		if <-later.done; later.Err != nil {
			t.Errorf("the call in flight: %v", later.Err)
		}
	})
	t.Run("a session goes on over a new connection, and calls in flight are unknown", func(t *testing.T) {
		proxy := faultproxy.Start(t, server.Addr())
		var sessions atomic.Int64
		c := dial(t, Options{Servers: []string{proxy.Addr()}, Session: func(id int64, _ time.Duration) { sessions.Store(id) }})
		if err := c.Do(bounded(t), &Call{Op: Create("/mine", nil, anyone, Ephemeral)}); err != nil {
			t.Fatal(err)
		}
		first := sessions.Load()
		proxy.ToServer.Hold()
		call := &Call{Op: Exists("/mine", false)}
		c.Send(call)
		proxy.Cut()
		<-call.done
		if call.Err != ErrUnknown {
			t.Errorf("a call in flight: %v", call.Err)
		}
		proxy.Heal()
		call = &Call{Op: Exists("/mine", false)}
		if err := c.Do(bounded(t), call); err != nil || call.Stat.EphemeralOwner != first || sessions.Load() != first {
			t.Errorf("%v, session %d, then %d", err, first, sessions.Load())
		}
	})
}

func TestACallThatWasNotSentIsWithdrawn(t *testing.T) {
	c := dial(t, Options{Servers: []string{ports.Addr(ports.Reserve(t))}})
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
		Create("/a", nil, anyone, Container), Get("/a", false), Children("/a", false), Set("/a", nil, 0),
		Multi(Create("/a", nil, anyone, Container), Delete("/a", 0), Set("/a", nil, 0)),
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

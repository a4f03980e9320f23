package suites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// EndInTime checks that each call ends by itself if a store with a timeout gets no replies, even if it waits for
// another call or a connection. Its error must not match that of a context, as the caller's has not ended.
func EndInTime(t *testing.T, s store.Store, held store.Request) {
	t.Helper()
	calls := Calls(s, held)
	calls["Renew many"] = func(ctx context.Context) error {
		return renew(ctx, s, slices.Repeat([]store.Renewal{Renewal(held)}, 200)...)
	}
	limit := s.Capabilities().Timeout + 2*time.Second // the last for a busy machine
	endless, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for name, call := range calls {
		for _, ctx := range []context.Context{context.Background(), endless, context.Background()} {
			wg.Go(func() {
				begin := time.Now()
				err := call(ctx)
				if took := time.Since(begin); err == nil || took > limit {
					t.Errorf("%s returned %v after %v, want an error within %v", name, err, took, limit)
				}
				if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no reply in time") {
					t.Errorf("%s returned %v, want no reply in time", name, err)
				}
			})
		}
	}
	wg.Wait()
}

// HungServer checks that a server that hangs delays neither a call beyond its context, nor Close. Stop
// stops the server of both stores until goOn is called.
func HungServer(t *testing.T, s, other store.Store, stop func() (goOn func())) {
	t.Helper()
	held, waits := Request("held"), Queued("held")
	Granted(t, s, held)
	Refused(t, s, waits)
	goOn := stop()
	defer goOn()
	calls := Calls(s, held)
	calls["Wait"] = func(ctx context.Context) error {
		return cmp.Or(s.Wait(ctx, waits.Name, waits.ID), context.DeadlineExceeded) // it may return for no reason
	}
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		begin := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			t.Errorf("%s: %v after %v, want the error of its context", name, err, took)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- calls["another Acquire"](context.Background()) }()
	time.Sleep(100 * time.Millisecond) // until the call is in flight
	begin := time.Now()
	s.Close()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	if err := <-ended; !errors.Is(err, store.ErrClosed) {
		t.Errorf("a call that Close ends: %v", err)
	}
	goOn()
	Granted(t, other, Request("after"))
}

const slack = 1500 * time.Millisecond // for a busy machine

// Hung opens a client by a URL whose servers stop answering, except at the URL other, when hang is called.
func Hung(t *testing.T, url, other string, hang func()) {
	holder, c := openURL(t, other), openURL(t, url)
	lease := locked(t, holder, "held")
	defer lease.Unlock(context.Background())
	ended := make(chan error, 2)
	lock := func(name string) {
		_, err := c.Lock(context.Background(), name)
		ended <- err
	}
	go lock("held")
	Eventually(t, "the call does not wait", func() bool {
		lock, err := holder.Inspect(t.Context(), "held")
		return err == nil && len(lock.Waiters) == 1
	})
	hang()
	began := time.Now()
	go lock("held") // behind the call that waits
	for range 2 {
		if err := <-ended; !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	}
	if took, limit := time.Since(began), 6*time.Second+slack; took > limit {
		t.Errorf("the calls gave up after %v, want %v at most", took, limit)
	}
	go lock("other")
	time.Sleep(100 * time.Millisecond) // until the call is in flight
	began = time.Now()
	c.Close()
	if took, limit := time.Since(began), 6*time.Second+slack; took > limit {
		t.Errorf("Close took %v, want %v at most", took, limit)
	}
	<-ended
}

// A LateBed delays one request of a store.
type LateBed struct {
	S, Other store.Store           // of two programs
	Delay    func(r store.Request) // acquires a name through S, and gives up while the request is on its way
	Arrive   func()                // lets the request arrive, and waits until the server has executed it
}

// Late checks that a request that arrives after the call that undoes it, because of the network or the server,
// is not granted. Otherwise the name would be held without a holder until the TTL is over.
func Late(t *testing.T, newBed func(t *testing.T) *LateBed) {
	run := func(what string, test func(t *testing.T, b *LateBed, r store.Request)) {
		t.Run(what, func(t *testing.T) { test(t, newBed(t), Request("late: "+what)) })
	}
	gone := func(t *testing.T, b *LateBed, r store.Request) {
		t.Helper()
		b.Arrive()
		Granted(t, b.Other, Request(r.Name))
	}
	run("after Leave", func(t *testing.T, b *LateBed, r store.Request) {
		b.Delay(r)
		Leave(t, b.S, r)
		gone(t, b, r)
	})
	for _, keep := range []store.Keep{{}, {State: store.Cooling, For: time.Millisecond}} {
		run(fmt.Sprint("repeated and released, ", keep.State), func(t *testing.T, b *LateBed, r store.Request) {
			b.Delay(r)
			Granted(t, b.S, r)
			must(t, b.S.Release(Limited(t), r.Name, r.ID, keep))
			Eventually(t, "the name is still closed", func() bool {
				page, err := b.Other.List(Limited(t), store.Query{Name: r.Name})
				return err == nil && len(page.Locks) == 0
			})
			gone(t, b, r)
		})
	}
	// Any program may break the grant without knowing that a request has no reply. If that request were granted,
	// the holder would renew its lease again, with a token below that of another holder.
	for _, who := range []string{"its own store", "another store"} {
		run("broken by "+who, func(t *testing.T, b *LateBed, r store.Request) {
			b.Delay(r)
			Granted(t, b.S, r)
			breaker := b.S
			if who == "another store" {
				breaker = b.Other
			}
			must(t, breaker.Break(Limited(t), r.Name, r.ID))
			next := Request(r.Name)
			Granted(t, b.Other, next)
			Release(t, b.Other, next)
			b.Arrive()
			out, err := b.S.Renew(Limited(t), []store.Renewal{Renewal(r)})
			if err != nil || out[0].Status != store.Gone {
				t.Errorf("Renew: %+v, %v; want that the grant is gone", out, err)
			}
			Granted(t, b.Other, Request(r.Name))
		})
	}
	// Neither a renewal nor a refused Release ends a grant, even if the first request for it had no reply.
	run("asked for again", func(t *testing.T, b *LateBed, r store.Request) {
		r.Mode = store.Shared
		b.Delay(r)
		first := Granted(t, b.S, r)
		same := func() {
			t.Helper()
			if again := Granted(t, b.S, r); again.Token != first.Token {
				t.Errorf("token %d, then %d", first.Token, again.Token)
			}
		}
		Extended(t, b.S, r)
		same()
		if err := b.S.Release(Limited(t), r.Name, r.ID, store.Keep{State: store.Done, For: time.Minute}); !errors.Is(err, store.ErrInvalid) {
			t.Fatalf("Release: %v", err)
		}
		same()
		b.Arrive()
	})
	// Break ends only grants. A waiter keeps its place, even if its first request is late.
	run("a waiter", func(t *testing.T, b *LateBed, r store.Request) {
		Granted(t, b.Other, Request(r.Name))
		r.Queue = true
		b.Delay(r)
		Refused(t, b.S, r)
		if err := b.S.Break(Limited(t), r.Name, r.ID); !errors.Is(err, store.ErrNotHeld) {
			t.Fatalf("Break: %v", err)
		}
		b.Arrive()
		if again := Refused(t, b.S, r); again.Place != 1 {
			t.Errorf("place %d, want 1", again.Place)
		}
	})
}

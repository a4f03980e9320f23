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

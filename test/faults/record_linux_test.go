package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-lock/holdfast"
)

// now returns the time on the monotonic clock of the machine, which all processes share.
func now() time.Duration {
	const monotonic = 1
	var ts syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// A recorder takes locks and records their holds.
type recorder struct {
	note    func(Hold)
	unknown func(Attempt)
}

func record(h *History) recorder { return recorder{h.Add, h.AddUnknown} }

// A held is a lease with its record.
type held struct {
	*holdfast.Lease
	r   recorder
	ctx context.Context

	mu   sync.Mutex
	hold Hold
}

// lock takes a lock and records it. A call that failed may have been granted nevertheless.
func (r recorder) lock(ctx context.Context, c *holdfast.Client, name string, ttl time.Duration, opts ...holdfast.CallOption) (*held, error) {
	asked := now()
	lease, err := c.Lock(ctx, name, append(opts, holdfast.TTL(ttl))...)
	if err != nil {
		r.unknown(Attempt{Who: c.Owner(), Name: name, Asked: asked, Ended: now()})
		return nil, err
	}
	return r.adopt(c, lease, Hold{Asked: asked, TTL: ttl}), nil
}

// adopt records a lease. Hold has its mode, its TTL and when it was asked for.
func (r recorder) adopt(c *holdfast.Client, lease *holdfast.Lease, hold Hold) *held {
	hold.Got = now()
	hold.Who, hold.Name, hold.ID, hold.Token = c.Owner(), lease.Name(), lease.ID().String(), lease.Token()
	h := &held{Lease: lease, r: r, ctx: lease.Context(context.Background()), hold: hold}
	h.believes()
	r.note(h.hold)
	return h
}

// believes reports whether the lease has not ended for its holder, and records the time at which
// that was certain.
func (h *held) believes() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := now()
	// A lease ends its margin before the time at which the store may end the grant. The margin is
	// also for stores that use the wall clock, which runs faster than the monotonic clock while it
	// is being corrected. One percent is more than usual corrections need. A waiter may be granted
	// less than the TTL at first, with a smaller margin.
	left := time.Until(h.Deadline())
	ttl := max(0, min(h.hold.TTL, left))
	margin := min(max(ttl/20, time.Millisecond), time.Second) - ttl/100
	h.hold.Expiry = max(h.hold.Expiry, at+left+margin)
	h.hold.Deadline = max(h.hold.Deadline, at+left)
	if h.ctx.Err() != nil || h.Err() != nil { // after a pause, a timer may be late
		return false
	}
	h.hold.Believed = at
	return true
}

// watch calls believes continuously until the lease ends, and then closes the channel.
func (h *held) watch() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		for h.believes() {
			time.Sleep(time.Millisecond)
		}
		h.change(func(*Hold) {})
	}()
	return over
}

// mustLive fails the test if the lease has ended. Over is the channel of watch.
func (h *held) mustLive(t testing.TB, over <-chan struct{}) {
	t.Helper()
	select {
	case <-over:
		t.Errorf("the lease of %s was lost: %v", h.Name(), h.Err())
	default:
	}
}

// change changes the record.
func (h *held) change(do func(hold *Hold)) {
	h.mu.Lock()
	do(&h.hold)
	hold := h.hold
	h.mu.Unlock()
	h.r.note(hold)
}

// unlock releases the lock and records it.
func (h *held) unlock(ctx context.Context) error {
	h.believes()
	h.change(func(hold *Hold) { hold.Unlock = now() }) // in case the process is killed
	err := h.Unlock(ctx)
	h.change(func(hold *Hold) {
		if err == nil {
			hold.Freed = now()
		}
	})
	return err
}

// A turn is a call of Lock that runs on its own goroutine.
type turn struct {
	t    testing.TB
	done chan struct{}
	held *held
	err  error
}

// later starts a call of Lock.
func (r recorder) later(t testing.TB, ctx context.Context, c *holdfast.Client, name string, ttl time.Duration, opts ...holdfast.CallOption) *turn {
	w := &turn{t: t, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.held, w.err = r.lock(ctx, c, name, ttl, opts...)
	}()
	return w
}

// get checks L: it waits for the lock, for at most most.
func (w *turn) get(most time.Duration) *held {
	w.t.Helper()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		w.t.Fatalf("L: still not granted after %v", most)
	}
	if w.err != nil {
		w.t.Fatal(w.err)
	}
	return w.held
}

// must takes a lock, and fails the test after limit.
func (r recorder) must(t testing.TB, c *holdfast.Client, name string, ttl time.Duration, opts ...holdfast.CallOption) *held {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("not granted in %v", limit))
	defer cancel()
	h, err := r.lock(ctx, c, name, ttl, opts...)
	if err != nil {
		t.Fatalf("L: %v", err)
	}
	return h
}

func (h *held) mustUnlock(t testing.TB) {
	t.Helper()
	if err := h.unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// ends waits until a channel is closed.
func ends(t testing.TB, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(limit):
		t.Fatalf("%s: not after %v", what, limit)
	}
}

// check fails the test on an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

var errNotYet = errors.New("not yet")

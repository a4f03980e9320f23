package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// errNet is the error of a broken network.
var errNet = errors.New("connection reset by peer")

// A proxy is between a client and a real store. It counts calls, and a test can make it lose or
// delay them, or let them hang. Its fields are set before the client is used, or through set.
type proxy struct {
	store.Store

	mu      sync.Mutex
	acquire func(context.Context, store.Request) (store.Answer, error)
	wait    func(context.Context, string, store.ID) error
	leave   func(context.Context, string, store.ID) error
	renew   func(context.Context, []store.Renewal) ([]store.Renewed, error)
	release func(context.Context, string, store.ID, store.Keep) error
	caps    func(*store.Capabilities)

	acquires, waits, leaves, renews, releases atomic.Int64
}

// newProxy returns a proxy in front of a store. By default it has the timeouts of a remote
// store.
func newProxy(s store.Store) *proxy {
	return &proxy{Store: s, caps: func(c *store.Capabilities) { c.Instant = false }}
}

// withoutQueue returns a proxy in front of a store that does not queue waiters.
func withoutQueue(s store.Store) *proxy {
	p := newProxy(s)
	p.caps = func(c *store.Capabilities) {
		c.Instant = false
		c.Features &^= store.FeatureQueue
	}
	return p
}

func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func hook[F any](p *proxy, f *F) F {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *f
}

func (p *proxy) Capabilities() store.Capabilities {
	caps := p.Store.Capabilities()
	if p.caps != nil {
		p.caps(&caps)
	}
	return caps
}

func (p *proxy) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	p.acquires.Add(1)
	if f := hook(p, &p.acquire); f != nil {
		return f(ctx, req)
	}
	return p.Store.Acquire(ctx, req)
}

func (p *proxy) Wait(ctx context.Context, name string, id store.ID) error {
	p.waits.Add(1)
	if f := hook(p, &p.wait); f != nil {
		return f(ctx, name, id)
	}
	return p.Store.Wait(ctx, name, id)
}

func (p *proxy) Leave(ctx context.Context, name string, id store.ID) error {
	p.leaves.Add(1)
	if f := hook(p, &p.leave); f != nil {
		return f(ctx, name, id)
	}
	return p.Store.Leave(ctx, name, id)
}

func (p *proxy) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	p.renews.Add(1)
	if f := hook(p, &p.renew); f != nil {
		return f(ctx, grants)
	}
	return p.Store.Renew(ctx, grants)
}

func (p *proxy) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	p.releases.Add(1)
	if f := hook(p, &p.release); f != nil {
		return f(ctx, name, id, keep)
	}
	return p.Store.Release(ctx, name, id, keep)
}

// hang blocks until the context ends, like a call to a server that does not answer.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Hooks of a proxy for a store that cannot be reached, or that does not answer.
func failAcquire(context.Context, store.Request) (store.Answer, error) {
	return store.Answer{}, errNet
}

func failRenew(context.Context, []store.Renewal) ([]store.Renewed, error) { return nil, errNet }

func failRelease(context.Context, string, store.ID, store.Keep) error { return errNet }

func hangAcquire(ctx context.Context, _ store.Request) (store.Answer, error) {
	return store.Answer{}, hang(ctx)
}

func hangRenew(ctx context.Context, _ []store.Renewal) ([]store.Renewed, error) {
	return nil, hang(ctx)
}

func hangRelease(ctx context.Context, _ string, _ store.ID, _ store.Keep) error { return hang(ctx) }

// bubble runs a test with fake time. The client's goroutines must be gone at its end, which
// synctest checks.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// mustNew returns a client that the test closes.
func mustNew(t testing.TB, s store.Store, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newClient returns a client that is closed at the end of the test.
func newClient(t testing.TB, s store.Store, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c := mustNew(t, s, opts...)
	t.Cleanup(func() { c.Close() })
	return c
}

// pair returns two clients of one store, like two processes.
func pair(t testing.TB) (*holdfast.Client, *holdfast.Client) {
	t.Helper()
	s := memstore.New()
	return newClient(t, s, holdfast.WithOwner("alice")), newClient(t, s, holdfast.WithOwner("bob"))
}

func mustLock(t testing.TB, c *holdfast.Client, name string, opts ...holdfast.CallOption) *holdfast.Lease {
	t.Helper()
	lease, err := c.Lock(t.Context(), name, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lease
}

// later locks a name on another goroutine. If the name is not free, that goroutine waits when
// later returns. It works only in a bubble.
func later(t testing.TB, c *holdfast.Client, name string, opts ...holdfast.CallOption) <-chan *holdfast.Lease {
	lease := make(chan *holdfast.Lease, 1)
	go func() { lease <- mustLock(t, c, name, opts...) }()
	synctest.Wait()
	return lease
}

// laterErr is like later for a Lock of "n" that may fail. It returns the error.
func laterErr(ctx context.Context, c *holdfast.Client) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := c.Lock(ctx, "n")
		ended <- err
	}()
	synctest.Wait()
	return ended
}

func mustUnlock(t testing.TB, l *holdfast.Lease) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// want fails the test unless err matches all targets.
func want(t testing.TB, err error, targets ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that matches %q", targets)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %q does not match %q", err, target)
		}
	}
}

// wantNone fails the test if err matches one of the targets.
func wantNone(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("error %q matches %q", err, target)
		}
	}
}

// free fails the test unless another client can take the name at once.
func free(t testing.TB, c *holdfast.Client, name string) {
	t.Helper()
	lease, err := c.TryLock(context.Background(), name)
	if err != nil {
		t.Fatalf("%q is not free: %v", name, err)
	}
	lease.Unlock(context.Background())
}

// isDone reports whether a channel is closed.
func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// clock measures the time since it was created.
type clock struct{ start time.Time }

func newClock() clock { return clock{time.Now()} }

func (c clock) want(t testing.TB, d time.Duration) {
	t.Helper()
	if got := time.Since(c.start); got != d {
		t.Errorf("after %v, want %v", got, d)
	}
}

func (c clock) wantWithin(t testing.TB, low, high time.Duration) {
	t.Helper()
	if got := time.Since(c.start); got < low || got > high {
		t.Errorf("after %v, want %v to %v", got, low, high)
	}
}

// A recorder is an observer that records events.
type recorder struct {
	mu     sync.Mutex
	events []holdfast.Event
}

func (r *recorder) observe(e holdfast.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// kinds lists the kinds of all events. If kinds are given, it lists only those.
func (r *recorder) kinds(only ...holdfast.EventKind) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kinds []string
	for _, e := range r.events {
		if len(only) == 0 || slices.Contains(only, e.Kind) {
			kinds = append(kinds, e.Kind.String())
		}
	}
	return strings.Join(kinds, ", ")
}

// last returns the newest event of a kind.
func (r *recorder) last(kind holdfast.EventKind) (last holdfast.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			last = e
		}
	}
	return last
}

func (r *recorder) count(kind holdfast.EventKind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// hookCtx runs f on the first call of Err.
type hookCtx struct {
	context.Context
	once sync.Once
	f    func()
}

func (c *hookCtx) Err() error {
	c.once.Do(c.f)
	return c.Context.Err()
}

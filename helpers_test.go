package holdfast_test

import (
	"cmp"
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

// A hook counts the calls of one method of a store, and a test can replace the method.
type hook[F any] struct {
	f atomic.Pointer[F]
	n atomic.Int64
}

func (h *hook[F]) set(f F)      { h.f.Store(&f) }
func (h *hook[F]) reset()       { h.f.Store(nil) }
func (h *hook[F]) calls() int64 { return h.n.Load() }

// or counts a call, and returns the function that serves it.
func (h *hook[F]) or(method F) F {
	h.n.Add(1)
	if f := h.f.Load(); f != nil {
		return *f
	}
	return method
}

type (
	acquireFunc = func(context.Context, store.Request) (store.Answer, error)
	renewFunc   = func(context.Context, []store.Renewal) ([]store.Renewed, error)
	releaseFunc = func(context.Context, string, store.ID, store.Keep) error
	nameFunc    = func(context.Context, string, store.ID) error
)

// A proxy is between a client and a real store. It has the timeouts of a remote store.
type proxy struct {
	store.Store
	caps func(*store.Capabilities) // changes the capabilities; may be nil

	acquire     hook[acquireFunc]
	renew       hook[renewFunc]
	release     hook[releaseFunc]
	wait, leave hook[nameFunc]
}

func newProxy(s store.Store) *proxy { return &proxy{Store: s} }

// withoutQueue returns a proxy in front of a store that does not queue waiters.
func withoutQueue(s store.Store) *proxy {
	return &proxy{Store: s, caps: func(c *store.Capabilities) { c.Features &^= store.FeatureQueue }}
}

func (p *proxy) Capabilities() store.Capabilities {
	caps := p.Store.Capabilities()
	caps.Instant = false
	if p.caps != nil {
		p.caps(&caps)
	}
	return caps
}

func (p *proxy) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	return p.acquire.or(p.Store.Acquire)(ctx, req)
}

func (p *proxy) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	return p.renew.or(p.Store.Renew)(ctx, grants)
}

func (p *proxy) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	return p.release.or(p.Store.Release)(ctx, name, id, keep)
}

func (p *proxy) Wait(ctx context.Context, name string, id store.ID) error {
	return p.wait.or(p.Store.Wait)(ctx, name, id)
}

func (p *proxy) Leave(ctx context.Context, name string, id store.ID) error {
	return p.leave.or(p.Store.Leave)(ctx, name, id)
}

// fail makes calls end at once with err.
func (p *proxy) fail(err error) { p.answer(func(context.Context) error { return err }) }

// hang makes calls block until their context ends, like calls to a server that does not answer.
func (p *proxy) hang() {
	p.answer(hang)
	p.wait.set(func(ctx context.Context, _ string, _ store.ID) error { return hang(ctx) })
}

func (p *proxy) answer(f func(context.Context) error) {
	p.acquire.set(func(ctx context.Context, _ store.Request) (store.Answer, error) { return store.Answer{}, f(ctx) })
	p.renew.set(func(ctx context.Context, _ []store.Renewal) ([]store.Renewed, error) { return nil, f(ctx) })
	p.release.set(func(ctx context.Context, _ string, _ store.ID, _ store.Keep) error { return f(ctx) })
	p.leave.set(func(ctx context.Context, _ string, _ store.ID) error { return f(ctx) })
}

// heal ends what fail and hang began.
func (p *proxy) heal() {
	p.acquire.reset()
	p.renew.reset()
	p.release.reset()
	p.wait.reset()
	p.leave.reset()
}

// slow makes calls of Acquire take that long before and after the store executes them.
func (p *proxy) slow(before, after time.Duration) {
	p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
		time.Sleep(before)
		defer time.Sleep(after)
		return p.Store.Acquire(ctx, req)
	})
}

func failRenew(context.Context, []store.Renewal) ([]store.Renewed, error) { return nil, errNet }

func failAcquire(context.Context, store.Request) (store.Answer, error) { return store.Answer{}, errNet }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A world is what a scenario needs: a store, a client with a proxy in front of that store, and
// another client, which stands for another process. Most locks are named "n".
type world struct {
	*testing.T
	s        *memstore.Store
	p        *proxy
	c, other *holdfast.Client // of alice, through the proxy, and of bob
	start    time.Time
}

// Scenarios are tests that run in fake time, each in a world of its own. The goroutines of the
// clients must be gone at the end, which synctest checks.
type scenarios map[string]func(w *world)

func (all scenarios) run(t *testing.T) {
	for name, test := range all {
		t.Run(name, func(t *testing.T) { bubble(t, test) })
	}
}

// bubble runs one scenario. Options are those of the client c.
func bubble(t *testing.T, test func(w *world), opts ...holdfast.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, s: memstore.New(), start: time.Now()}
		w.p = newProxy(w.s)
		w.c = w.client(append(opts, holdfast.WithOwner("alice"))...)
		w.other = newClient(t, w.s, holdfast.WithOwner("bob"))
		test(w)
	})
}

// client returns another client of the proxy.
func (w *world) client(opts ...holdfast.Option) *holdfast.Client {
	return newClient(w, w.p, opts...)
}

// observed returns another client of the proxy, and a recorder of its events.
func (w *world) observed(opts ...holdfast.Option) (*holdfast.Client, *recorder) {
	seen := new(recorder)
	return w.client(append(opts, holdfast.WithObserver(seen.observe))...), seen
}

// lock takes "n".
func (w *world) lock(c *holdfast.Client, opts ...holdfast.CallOption) *holdfast.Lease {
	w.Helper()
	return mustLock(w, c, "n", opts...)
}

// later takes "n" on another goroutine. If the name is not free, that goroutine waits when later
// returns.
func (w *world) later(c *holdfast.Client, opts ...holdfast.CallOption) <-chan *holdfast.Lease {
	lease := make(chan *holdfast.Lease, 1)
	go func() { lease <- mustLock(w, c, "n", opts...) }()
	synctest.Wait()
	return lease
}

// laterErr is like later for a call that may fail. It returns the error.
func (w *world) laterErr(ctx context.Context, c *holdfast.Client, opts ...holdfast.CallOption) <-chan error {
	ended := make(chan error, 1)
	go func() {
		lease, err := c.Lock(ctx, "n", opts...)
		if err == nil {
			err = lease.Unlock(context.Background())
		}
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// try takes "n" and gives it back if it is free.
func (w *world) try(c *holdfast.Client, opts ...holdfast.CallOption) error {
	lease, err := c.TryLock(context.Background(), "n", opts...)
	if err == nil {
		lease.Unlock(context.Background())
	}
	return err
}

// free fails the test unless another process can take the names at once.
func (w *world) free(names ...string) {
	w.Helper()
	for _, name := range names {
		lease, err := w.other.TryLock(context.Background(), name)
		if err != nil {
			w.Fatalf("%q is not free: %v", name, err)
		}
		lease.Unlock(context.Background())
	}
}

// breaks ends a lease by force.
func (w *world) breaks(l *holdfast.Lease) {
	w.Helper()
	must(w, w.s.Break(w.Context(), "n", l.ID()))
}

// mark starts the clock of took and within again.
func (w *world) mark() { w.start = time.Now() }

// took fails the test unless exactly that time has passed.
func (w *world) took(d time.Duration) {
	w.Helper()
	w.within(d, d)
}

func (w *world) within(low, high time.Duration) {
	w.Helper()
	between(w, "after", time.Since(w.start), low, high)
}

// asked fails the test unless the store has got so many calls.
func (w *world) asked(acquires, renews, releases int64) {
	w.Helper()
	equal(w, "calls of Acquire, Renew and Release", [3]int64{w.p.acquire.calls(), w.p.renew.calls(), w.p.release.calls()}, [3]int64{acquires, renews, releases})
}

// mustNew returns a client that the test closes.
func mustNew(t testing.TB, s store.Store, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(s, opts...)
	must(t, err)
	return c
}

// newClient returns a client that is closed at the end of the test.
func newClient(t testing.TB, s store.Store, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c := mustNew(t, s, opts...)
	t.Cleanup(func() { c.Close() })
	return c
}

func mustLock(t testing.TB, c *holdfast.Client, name string, opts ...holdfast.CallOption) *holdfast.Lease {
	t.Helper()
	lease, err := c.Lock(context.Background(), name, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lease
}

func mustUnlock(t testing.TB, l *holdfast.Lease) {
	t.Helper()
	must(t, l.Unlock(context.Background()))
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

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

// invalid fails the test unless the error is an ErrInvalid that contains the text.
func invalid(t testing.TB, what string, err error, text string) {
	t.Helper()
	if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want an ErrInvalid that says %s", what, err, text)
	}
}

// panicOf returns the value with which f panics.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// between fails the test unless a value is in a range.
func between[T cmp.Ordered](t testing.TB, what string, got, low, high T) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %v, want %v to %v", what, got, low, high)
	}
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

// together runs f(0) … f(n-1) concurrently.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func nothing(context.Context) error { return nil }

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

// of returns the events of these kinds.
func (r *recorder) of(kinds ...holdfast.EventKind) []holdfast.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e holdfast.Event) bool { return !slices.Contains(kinds, e.Kind) })
}

func (r *recorder) count(kind holdfast.EventKind) int { return len(r.of(kind)) }

// last returns the newest event of a kind.
func (r *recorder) last(kind holdfast.EventKind) (last holdfast.Event) {
	if events := r.of(kind); len(events) > 0 {
		last = events[len(events)-1]
	}
	return last
}

// kinds lists the kinds of the events of these kinds.
func (r *recorder) kinds(only ...holdfast.EventKind) string {
	var kinds []string
	for _, e := range r.of(only...) {
		kinds = append(kinds, e.Kind.String())
	}
	return strings.Join(kinds, ", ")
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

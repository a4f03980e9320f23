package suites

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// Patience bounds the wait for events that should happen soon. Only a failing test waits that long.
const Patience = 30 * time.Second

// Limited returns a context that ends after Patience.
func Limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until a condition is true.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", Patience, what)
		}
	}
}

// Client returns a client of a store, which is closed at the end of the test.
func Client(t testing.TB, s store.Store, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(s, opts...)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// openURL opens a client, which is closed at the end of the test.
func openURL(t testing.TB, url string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(Limited(t), url)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func locked(t testing.TB, c *holdfast.Client, name string, opts ...holdfast.CallOption) *holdfast.Lease {
	t.Helper()
	lease, err := c.Lock(Limited(t), name, opts...)
	must(t, err)
	return lease
}

// Pair locks and unlocks a name.
func Pair(ctx context.Context, c *holdfast.Client, name string) error {
	lease, err := c.Lock(ctx, name)
	if err == nil {
		err = lease.Unlock(ctx)
	}
	return err
}

// Request returns an exclusive request under a new identity, with a TTL that is longer than a test takes.
func Request(name string) store.Request {
	return store.Request{
		Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1,
		TTL: time.Minute, Tokens: 1, Owner: "host/1234/abcdef",
	}
}

// Queued returns a request that waits for a name.
func Queued(name string) store.Request {
	req := Request(name)
	req.Queue = true
	return req
}

// Renewal returns a renewal of the grant of a request.
func Renewal(req store.Request) store.Renewal {
	return store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode}
}

// Granted makes a request that must be granted.
func Granted(t testing.TB, s store.Store, req store.Request) store.Answer {
	t.Helper()
	answer, err := s.Acquire(Limited(t), req)
	if err != nil || !answer.Granted() {
		t.Fatalf("Acquire %q: %+v, %v; want a grant", req.Name, answer.Refusal, err)
	}
	return answer
}

// Refused makes a request that must be refused.
func Refused(t testing.TB, s store.Store, req store.Request) *store.Refusal {
	t.Helper()
	answer, err := s.Acquire(Limited(t), req)
	if err != nil || answer.Granted() {
		t.Fatalf("Acquire %q: %+v, %v; want a refusal", req.Name, answer, err)
	}
	return answer.Refusal
}

// Release releases the grant of a request.
func Release(t testing.TB, s store.Store, req store.Request) {
	t.Helper()
	if err := s.Release(Limited(t), req.Name, req.ID, store.Keep{}); err != nil {
		t.Fatalf("Release %q: %v", req.Name, err)
	}
}

// Extended renews the grant of a request.
func Extended(t testing.TB, s store.Store, req store.Request) store.Renewed {
	t.Helper()
	out, err := s.Renew(Limited(t), []store.Renewal{Renewal(req)})
	if err != nil || out[0].Status != store.Extended {
		t.Fatalf("Renew %q: %+v, %v; want that it is extended", req.Name, out, err)
	}
	return out[0]
}

// Leave ends everything of a request.
func Leave(t testing.TB, s store.Store, req store.Request) {
	t.Helper()
	if err := s.Leave(Limited(t), req.Name, req.ID); err != nil {
		t.Fatalf("Leave %q: %v", req.Name, err)
	}
}

// AllExtended makes renewals in one call, all of which must succeed.
func AllExtended(t testing.TB, s store.Store, renewals ...store.Renewal) {
	t.Helper()
	out, err := s.Renew(Limited(t), renewals)
	if err != nil || !allExtended(out) {
		t.Errorf("Renew: %+v, %v; want that all are extended", out, err)
	}
}

func allExtended(out []store.Renewed) bool {
	return !slices.ContainsFunc(out, func(r store.Renewed) bool { return r.Status != store.Extended })
}

// TokenOf takes and releases a name, and returns its token.
func TokenOf(t testing.TB, s store.Store, name string) int64 {
	t.Helper()
	req := Request(name)
	token := Granted(t, s, req).Token
	Release(t, s, req)
	return token
}

// WorksBy makes calls until one succeeds, and fails the test if that does not happen in time.
func WorksBy(t testing.TB, s store.Store, deadline time.Time) {
	t.Helper()
	err := errors.New("it is too late")
	for time.Now().Before(deadline) {
		if _, err = s.Acquire(t.Context(), Request("after")); err == nil {
			return
		}
	}
	t.Errorf("no call succeeded in time: %v", err)
}

// Calls returns a call of each kind on a name that is held, except for Wait.
func Calls(s store.Store, held store.Request) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Acquire":         func(ctx context.Context) error { _, err := s.Acquire(ctx, held); return err },
		"another Acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, Request("other")); return err },
		"Release":         func(ctx context.Context) error { return s.Release(ctx, held.Name, held.ID, store.Keep{}) },
		"Leave":           func(ctx context.Context) error { return s.Leave(ctx, held.Name, held.ID) },
		"Break":           func(ctx context.Context) error { return s.Break(ctx, held.Name, held.ID) },
		"List":            func(ctx context.Context) error { _, err := s.List(ctx, store.Query{}); return err },
		"Renew":           func(ctx context.Context) error { return renew(ctx, s, Renewal(held)) },
	}
}

// renew returns the error of the first renewal that has failed.
func renew(ctx context.Context, s store.Store, renewals ...store.Renewal) error {
	outcomes, err := s.Renew(ctx, renewals)
	for _, out := range outcomes {
		err = cmp.Or(err, out.Err)
	}
	return err
}

// URLWorks checks that clients with this URL can lock, wait for each other, renew and unlock.
func URLWorks(t *testing.T, url string) {
	t.Helper()
	ctx := Limited(t)
	one, two := openURL(t, url), openURL(t, url)
	lease := locked(t, one, "a")
	var token int64
	ended := make(chan error)
	go func() {
		ended <- two.Do(ctx, "a", func(ctx context.Context) error { token = holdfast.TokenFrom(ctx); return nil })
	}()
	Eventually(t, "the other client does not wait", func() bool {
		lock, err := one.Inspect(ctx, "a")
		return err == nil && len(lock.Waiters) == 1
	})
	if err := errors.Join(lease.Renew(ctx), lease.Unlock(ctx), <-ended); err != nil {
		t.Error(err)
	}
	if token <= lease.Token() {
		t.Errorf("token %d after %d", token, lease.Token())
	}
}

// A Text is a buffer that can be read while it is written, such as a log.
type Text struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write adds to the text.
func (x *Text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

// String returns what was written so far.
func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

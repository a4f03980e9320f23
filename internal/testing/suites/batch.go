package suites

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/store"
)

// A LaterResult is the outcome of a call.
type LaterResult[T any] struct {
	Value T
	Err   error
}

// Later starts a call, and returns when length, that of the store's batcher, has grown.
func Later[T any](t testing.TB, length func() int, call func() (T, error)) <-chan LaterResult[T] {
	t.Helper()
	before, done := length(), make(chan LaterResult[T], 1)
	go func() {
		value, err := call()
		done <- LaterResult[T]{value, err}
	}()
	Eventually(t, "the call has not started", func() bool { return length() > before })
	return done
}

// RenewalsShare checks that queued renewals of single grants share requests, of which there may be most. A client
// renews a contended name before it hands it over, which must not delay its other leases. Hold keeps calls
// queued, whose number queued returns, until goOn is called. Sent returns how many requests were made.
func RenewalsShare(t *testing.T, s store.Store, most int, hold func() (goOn func()), queued, sent func() int) {
	t.Helper()
	const n = 100
	reqs := make([]store.Request, n)
	for i := range reqs {
		reqs[i] = Request(fmt.Sprint("renewed", i))
		Granted(t, s, reqs[i])
	}
	gone := reqs[n-1]
	Release(t, s, gone)
	before := sent()
	goOn := sync.OnceFunc(hold())
	defer goOn() // otherwise the store might not be closed after a failure
	var wg sync.WaitGroup
	for _, req := range reqs {
		wg.Go(func() {
			r, want := Renewal(req), store.Renewed{Status: store.Extended, TTL: req.TTL, Tokens: 10}
			r.Tokens = 10
			if req.ID == gone.ID {
				want = store.Renewed{Status: store.Gone}
			}
			out, err := s.Renew(Limited(t), []store.Renewal{r})
			if err != nil || out[0].Status != want.Status || out[0].Tokens != want.Tokens || out[0].TTL != want.TTL {
				t.Errorf("%s: %+v, %v; want %+v", req.Name, out, err, want)
			}
		})
	}
	Eventually(t, "not all renewals are queued", func() bool { return queued() == n })
	goOn()
	wg.Wait()
	if after := sent(); after-before > most {
		t.Errorf("%d requests for %d renewals, want %d at most", after-before, n, most)
	}
}

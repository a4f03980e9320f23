package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	patience = time.Minute      // for events that should happen soon; only a failing test waits that long
	eternity = 10 * time.Minute // a TTL longer than any test
	busy     = 2 * time.Second  // the delay that a busy machine may add
)

type suite struct {
	*testing.T
	target
	base    string // prefix of all names of this test, which no other test uses
	names   int
	conns   []*conn
	claims  []*claim
	cancels []context.CancelFunc // of calls of Wait

	residue    []string // before the test
	goroutines int
}

// A conn is a connection that is closed at the end of its test.
type conn struct {
	store.Store
	s      *suite
	closed bool
}

func newSuite(t *testing.T, g target) *suite {
	s := &suite{T: t, target: g}
	sentence := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
	s.base = fmt.Sprintf("%.40s-%s", strings.ToLower(sentence), strings.ToLower(rand.Text()[:10]))
	if g.Residue != nil {
		s.residue = g.Residue(t)
	}
	s.goroutines = runtime.NumGoroutine()
	return s
}

// end cleans up, and counts goroutines.
func (s *suite) end() {
	s.cleanUp()
	if !s.Failed() { // otherwise the failure explains what is left
		s.noMoreGoroutinesThan(s.goroutines)
	}
}

// cleanUp is like end, for a test that runs in parallel with others.
func (s *suite) cleanUp() {
	for _, cancel := range s.cancels {
		cancel()
	}
	s.undo()
	s.closeAll()
}

// undo removes what the test left behind, on the connection of each claim, unless that is closed.
func (s *suite) undo() {
	var spare *conn // not in a OnceValue, which panics if open ends the test
	for _, k := range s.claims {
		if !k.alive {
			continue
		}
		c := k.conn
		if c.closed {
			if spare == nil {
				spare = s.open()
			}
			c = spare
		}
		end := c.Leave
		if k.kept && s.caps.Features.Has(store.FeatureList) {
			end = c.Break
		}
		s.call(func(ctx context.Context) error { return end(ctx, k.req.Name, k.req.ID) })
		k.alive = false
	}
}

// noMoreGoroutinesThan expects that soon at most n goroutines are left.
func (s *suite) noMoreGoroutinesThan(n int) {
	s.Helper()
	var stacks string
	ok := s.eventually(5*time.Second, func() bool {
		if runtime.NumGoroutine() <= n {
			return true
		}
		// The number includes goroutines that are ending. Fake time cannot wait for them; a dump omits them.
		buf := make([]byte, 1<<20)
		stacks = string(buf[:runtime.Stack(buf, true)])
		return strings.Count("\n"+stacks, "\ngoroutine ") <= n
	})
	if !ok {
		s.Errorf("more than %d goroutines:\n%s", n, stacks)
	}
}

// eventually polls, and reports whether the condition became true within the limit.
func (s *suite) eventually(limit time.Duration, cond func() bool) bool {
	for start := time.Now(); !cond(); time.Sleep(s.TTL / 50) {
		if time.Since(start) > limit {
			return false
		}
	}
	return true
}

// call makes a call whose context ends when it returns.
func (s *suite) call(f func(ctx context.Context) error) error {
	ctx, cancel := s.boundedFor(0)
	defer cancel()
	return f(ctx)
}

// boundedFor returns the context of a wait for hand-offs, each of which may take until the next poll.
func (s *suite) boundedFor(handovers int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience+time.Duration(handovers)*max(time.Second, s.caps.Heartbeat))
}

func (s *suite) open() *conn {
	s.Helper()
	c := &conn{Store: s.Open(s.T), s: s}
	s.conns = append(s.conns, c)
	return c
}

// open2 returns two connections and a new name, which most tests need.
func (s *suite) open2() (one, two *conn, name string) {
	s.Helper()
	return s.open(), s.open(), s.name()
}

// closeAll closes every connection, as if all processes had ended normally.
func (s *suite) closeAll() {
	s.Helper()
	for _, c := range s.conns {
		c.close()
	}
}

func (c *conn) close() {
	c.s.Helper()
	if !c.closed {
		c.closed = true
		closeStores(c.s, c)
	}
}

func closeStores(t testing.TB, stores ...store.Store) {
	t.Helper()
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// name returns a new name that starts with s.base.
func (s *suite) name() string {
	s.names++
	return fmt.Sprintf("%s:%d", s.base, s.names)
}

// promptly expects that a waiter is woken by a push when a holder releases its name, either early, before the
// waiter calls Wait, or later. The best of five wake-ups must take far less than Again, which is when a poll
// would happen, as a busy machine may delay some. A store that polls at once passes as well.
func (s *suite) promptly(early bool, claims func(one, two *conn, name string) (holder, waiter *claim)) {
	s.Helper()
	one, two, _ := s.open2()
	best := patience
	for range 5 {
		holder, waiter := claims(one, two, s.name())
		waiter.queued(1)
		if early {
			holder.release()
		}
		start := time.Now()
		w := waiter.wait()
		if !early {
			start = time.Now()
			holder.release()
		}
		w.woken()
		took := time.Since(start)
		waiter.granted()
		if took < max(waiter.again/2, s.TTL/10) {
			return
		}
		best = min(best, took)
	}
	s.Errorf("the best of five wake-ups took %v: it was not pushed", best)
}

func exclusiveRivals(one, two *conn, name string) (holder, waiter *claim) {
	return one.exclusive(name).granted(), two.exclusive(name)
}

// parallel runs f(0) … f(n-1) concurrently, a few at a time, and fails the test on an error.
func (s *suite) parallel(n, workers int, f func(i int) error) {
	s.Helper()
	errs, turns := make([]error, n), make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			if err := f(i); err != nil {
				errs[i] = fmt.Errorf("%d: %w", i, err)
			}
			<-turns
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
}

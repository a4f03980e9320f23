package sqlitestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// A host is a machine whose clocks a test sets.
type host struct {
	*testing.T
	path   string
	boot   string
	steady bool
	now    time.Duration // since boot
	wall   time.Time
}

func newHost(t *testing.T) *host {
	return &host{
		T: t, path: filepath.Join(t.TempDir(), "locks.db"),
		boot: "boot 1", steady: true, now: time.Hour, wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

func (w *host) pass(d time.Duration) { w.now, w.wall = w.now+d, w.wall.Add(d) }

func (w *host) clock() sqlitestore.Clock {
	c := sqlitestore.Clock{
		Boot: w.boot, Steady: w.steady,
		Now:  func() int64 { return int64(w.now) },
		Wall: func() int64 { return w.wall.UnixNano() },
	}
	if !w.steady {
		c.Now = c.Wall
	}
	return c
}

func (w *host) open() *sqlitestore.Store {
	w.Helper()
	s, err := sqlitestore.OpenAt(w.Context(), w.path, w.clock())
	must(w, err)
	w.Cleanup(func() { s.Close() })
	return s
}

// take expects a grant, and returns its last token.
func (w *host) take(s *sqlitestore.Store, req store.Request) int64 {
	w.Helper()
	answer := granted(w, s, req)
	return answer.Token + int64(answer.Tokens) - 1
}

// pair takes and releases a name, and returns its token.
func (w *host) pair(s *sqlitestore.Store) int64 {
	w.Helper()
	req := request("order")
	token := w.take(s, req)
	release(w, s, req)
	return token
}

func above(t *testing.T, token, before int64) int64 {
	t.Helper()
	if token <= before || token > store.MaxToken {
		t.Errorf("token %d after %d", token, before)
	}
	return token
}

// After a reboot, tokens continue above those of before, so there may be none left.
func TestTokensEndAfterAReboot(t *testing.T) {
	w := newHost(t)
	s := w.open()
	req := request("order")
	req.Floor = store.MaxToken - 2
	w.take(s, req)
	s.Close()
	w.boot, w.now = "boot 2", time.Minute
	if answer, err := w.open().Acquire(t.Context(), request("order")); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("granted %+v, %v, want ErrInvalid", answer, err)
	}
}

func TestTokensGrowWhenTheFileIsDeleted(t *testing.T) {
	path := newPath(t)
	last := int64(0)
	for range 3 {
		s := open(t, path)
		for range 50 {
			req := request("order")
			req.Tokens = 100
			last = above(t, granted(t, s, req).Token, last)
			release(t, s, req)
		}
		s.Close()
		must(t, os.Remove(path))
		time.Sleep(10 * time.Millisecond) // so that the clock passes the last block
	}
}

// The wall clock is the only thing that remains from the previous boot.
func TestTokensGrowWhenTheFileIsDeletedInAReboot(t *testing.T) {
	w := newHost(t)
	s := w.open()
	last := w.pair(s)
	s.Close()
	must(t, os.Remove(w.path))
	w.boot, w.now, w.wall = "boot 2", time.Second, w.wall.Add(time.Minute)
	above(t, w.pair(w.open()), last)
}

func TestTokensGrowOverAReboot(t *testing.T) {
	w := newHost(t)
	last := int64(0)
	for _, change := range []func(){
		func() {},
		func() { w.wall = w.wall.Add(time.Minute) },
		func() { w.wall = w.wall.Add(-24 * time.Hour) }, // as if the clock battery were empty
		func() {},
	} {
		change()
		s := w.open()
		for range 5 {
			last = above(t, w.pair(s), last)
			w.pass(30 * time.Second)
		}
		s.Close()
		w.boot, w.now = w.boot+"1", time.Second
	}
}

// The clock may not advance between two grants, and may be set back on some systems.
func TestTokensGrowEvenIfTheClockDoesNotAdvance(t *testing.T) {
	for _, steady := range []bool{true, false} {
		w := newHost(t)
		w.steady = steady
		a, b := w.open(), w.open()
		last := int64(0)
		for i := range 10 {
			if steady { // two transactions of different handles take longer than a tick
				last = above(t, w.pair(a), last)
				continue
			}
			last = above(t, w.pair([]*sqlitestore.Store{a, b}[i%2]), last)
			w.pass(-time.Second)
		}
	}
}

func TestTokensStayAboveBlocksAndFloorsAheadOfTheClock(t *testing.T) {
	w := newHost(t)
	a, b := w.open(), w.open()
	req := request("order")
	req.Tokens = 1000
	last := w.take(a, req)
	if last < 1000 {
		t.Fatalf("last token %d of a thousand", last)
	}
	release(t, a, req)
	last = above(t, w.pair(b), last)
	w.pass(time.Minute) // now the clock is ahead of these tokens
	last = above(t, w.pair(a), last)
	req = request("order")
	req.Floor = last + 1_000_000_000
	last = above(t, w.take(b, req), req.Floor)
	release(t, b, req)
	last = above(t, w.pair(a), last)
	a.Close()
	b.Close()
	last = above(t, w.pair(w.open()), last)
	w.boot, w.now = "boot 2", time.Second
	above(t, w.pair(w.open()), last)
}

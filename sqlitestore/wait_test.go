package sqlitestore_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// wakes wants a release through one handle to end a wait through the other.
func wakes(t *testing.T, a, b store.Store) {
	t.Helper()
	req := request("order")
	if answer, err := a.Acquire(t.Context(), req); err != nil || !answer.Granted() {
		t.Fatalf("granted %v, error %v", answer.Granted(), err)
	}
	w := queue(t, b, "order")
	ended := make(chan error, 1)
	go func() { ended <- b.Wait(context.Background(), "order", w.ID) }()
	time.Sleep(time.Millisecond)
	if err := a.Release(t.Context(), "order", req.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Wait: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Wait does not return")
	}
	if err := b.Leave(t.Context(), "order", w.ID); err != nil {
		t.Fatal(err)
	}
}

func TestWakeUpsTravelEveryWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	a, b, c := open(t, path), open(t, path), open(t, path)
	sqlitestore.Loopback(c) // as on other systems
	for range 3 {
		wakes(t, a, a)
		wakes(t, a, b)
		wakes(t, a, c)
		wakes(t, c, b)
		wakes(t, c, c)
	}
}

// What concerns more waiters than fit into a datagram reaches all of them.
func TestDoneReachesAHundredWaiters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	a, b := open(t, path), open(t, path)
	for _, s := range []*sqlitestore.Store{a, b} {
		sqlitestore.SetHeartbeat(s, time.Hour) // they ask once, which takes its time on a busy machine
	}
	req := request("order")
	if _, err := a.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	waiters := make([]store.Request, 100)
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			waiters[i] = request("order")
			waiters[i].Queue = true
			if answer, err := b.Acquire(t.Context(), waiters[i]); err != nil || answer.Granted() {
				t.Errorf("waiter %d: granted %v, error %v", i, answer.Granted(), err)
			}
		})
	}
	wg.Wait()
	if err := a.Release(t.Context(), "order", req.ID, store.Keep{State: store.Done, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for i, w := range waiters {
		eventually(t, "all are woken", func() bool {
			if !sqlitestore.Known(b, "order", w.ID) {
				t.Fatalf("waiter %d was forgotten before it was woken", i)
			}
			return sqlitestore.Woken(b, "order", w.ID)
		})
	}
}

// A crowd holds and waits for one name, through one handle, where a wake-up takes no time.
type crowd struct {
	*world
	s   *sqlitestore.Store
	all map[string]store.Request
}

func (c *crowd) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// join asks for the name in a mode: "exclusive", "shared", or permits of five as in "3".
func (c *crowd) join(who, mode string) {
	c.Helper()
	req := request("order")
	req.Queue = true
	switch mode {
	case "exclusive":
	case "shared":
		req.Mode = store.Shared
	default:
		req.Mode, req.Weight, req.Limit = store.Permits, int(mode[0]-'0'), 5
	}
	c.all[who] = req
	c.ask(who)
}

func (c *crowd) ask(who string) {
	c.Helper()
	_, err := c.s.Acquire(c.Context(), c.all[who])
	c.check(err)
}

func (c *crowd) release(who string) { c.keep(who, store.Held, 0) }

func (c *crowd) keep(who string, state store.State, d time.Duration) {
	c.Helper()
	c.check(c.s.Release(c.Context(), "order", c.all[who].ID, store.Keep{State: state, For: d}))
}

func (c *crowd) leave(who string) {
	c.Helper()
	c.check(c.s.Leave(c.Context(), "order", c.all[who].ID))
}

func (c *crowd) renew(who string, mode store.Mode) {
	c.Helper()
	_, err := c.s.Renew(c.Context(), []store.Renewal{{Name: "order", ID: c.all[who].ID, Mode: mode, TTL: time.Minute}})
	c.check(err)
}

func TestWakesWhoseTurnItIsAndNobodyElse(t *testing.T) {
	for name, test := range map[string]struct {
		modes string // of a, b, c, d: the first of them hold, the others wait
		do    func(c *crowd)
		woken string
	}{
		"a release":            {"exclusive exclusive exclusive", func(c *crowd) { c.release("a") }, "b"},
		"a release, to reader": {"exclusive shared shared exclusive", func(c *crowd) { c.release("a") }, "b"},
		"a reader got in":      {"exclusive shared shared exclusive", func(c *crowd) { c.release("a"); c.ask("b") }, "c"},
		"the last reader did":  {"exclusive shared exclusive", func(c *crowd) { c.release("a"); c.ask("b") }, ""},
		"one of two readers":   {"shared shared exclusive", func(c *crowd) { c.release("a") }, ""},
		"both readers":         {"shared shared exclusive", func(c *crowd) { c.release("b"); c.release("a") }, "c"},
		"too few permits":      {"3 2 4 1", func(c *crowd) { c.release("a") }, ""},
		"enough permits":       {"3 2 3 1", func(c *crowd) { c.release("a") }, "c"},
		"done":                 {"exclusive exclusive shared exclusive", func(c *crowd) { c.keep("a", store.Done, time.Hour) }, "bcd"},
		"cooling":              {"exclusive exclusive exclusive", func(c *crowd) { c.keep("a", store.Cooling, time.Hour) }, "b"},
		"gave up while closed": {"exclusive exclusive exclusive", func(c *crowd) { c.keep("a", store.Cooling, time.Hour); c.leave("b") }, "c"},
		"a break":              {"exclusive exclusive exclusive", func(c *crowd) { c.check(c.s.Break(c.Context(), "order", c.all["a"].ID)) }, "b"},
		"the holder leaves":    {"exclusive exclusive exclusive", func(c *crowd) { c.leave("a") }, "b"},
		"a waiter leaves":      {"exclusive exclusive exclusive", func(c *crowd) { c.leave("b") }, ""},
		"the next one leaves":  {"exclusive exclusive exclusive", func(c *crowd) { c.release("a"); c.leave("b") }, "c"},
		"a big one leaves":     {"3 4 2 1", func(c *crowd) { c.leave("b") }, "c"},
		"a step down":          {"exclusive shared shared", func(c *crowd) { c.renew("a", store.Shared) }, "b"},
		"a step down in vain":  {"exclusive exclusive shared", func(c *crowd) { c.renew("a", store.Shared) }, ""},
		"a renewal":            {"exclusive exclusive", func(c *crowd) { c.renew("a", store.Exclusive) }, ""},
		"asking again":         {"exclusive exclusive exclusive", func(c *crowd) { c.ask("c") }, ""},
		"asking after a wake":  {"exclusive exclusive exclusive", func(c *crowd) { c.keep("a", store.Done, time.Hour); c.ask("b") }, "c"},
		"an end, seen by a try": {"exclusive exclusive exclusive", func(c *crowd) {
			c.ends("a")
			_, err := c.s.Acquire(c.Context(), request("order"))
			c.check(err)
		}, "b"},
		"an end, seen by a late release": {"exclusive exclusive exclusive", func(c *crowd) {
			c.ends("a")
			if err := c.s.Release(c.Context(), "order", c.all["a"].ID, store.Keep{}); !errors.Is(err, store.ErrNotHeld) {
				c.Errorf("error %v, want ErrNotHeld", err)
			}
		}, "b"},
		"an end, seen by the last in line": {"exclusive exclusive exclusive", func(c *crowd) { c.ends("a"); c.ask("c") }, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := &crowd{world: w, s: w.open(), all: map[string]store.Request{}}
			for i, mode := range strings.Fields(test.modes) {
				c.join(string(rune('a'+i)), mode)
			}
			test.do(c)
			woken := ""
			for _, who := range slices.Sorted(maps.Keys(c.all)) {
				if sqlitestore.Woken(c.s, "order", c.all[who].ID) {
					woken += who
				}
			}
			if woken != test.woken {
				t.Errorf("woken %q, want %q", woken, test.woken)
			}
		})
	}
}

// ends lets the time of a holder be over, and nobody else's.
func (c *crowd) ends(who string) {
	c.Helper()
	_, err := c.s.Renew(c.Context(), []store.Renewal{{Name: "order", ID: c.all[who].ID, Mode: c.all[who].Mode, TTL: time.Second}})
	c.check(err)
	c.pass(time.Second)
}

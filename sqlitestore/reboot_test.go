package sqlitestore_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// Holders and waiters end with the boot. Kept records last until their end on the wall clock.
func TestARebootEndsGrantsAndPreservesKeptRecords(t *testing.T) {
	w := newHost(t)
	s := w.open()
	for _, name := range []string{"held", "shared", "shared", "done", "short", "cooling", "cooling"} {
		req := request(name)
		req.TTL = time.Hour
		if name == "shared" || name == "cooling" {
			req.Mode = store.Shared
		}
		w.take(s, req)
		keep := map[string]store.Keep{
			"done":    {State: store.Done, For: 24 * time.Hour},
			"short":   {State: store.Done, For: 5 * time.Minute},
			"cooling": {State: store.Cooling, For: 24 * time.Hour},
		}[name]
		if keep != (store.Keep{}) {
			must(t, s.Release(t.Context(), name, req.ID, keep))
		}
	}
	for _, name := range []string{"held", "done"} {
		queue(t, s, name)
	}
	s.Close()

	w.pass(10 * time.Minute)
	w.boot, w.now = "boot 2", 20*time.Second
	s = w.open()
	page, err := s.List(t.Context(), store.Query{})
	must(t, err)
	var listed []string
	for _, l := range page.Locks {
		for _, h := range l.Holders {
			listed = append(listed, l.Name+" "+h.State.String())
			if h.Age != 10*time.Minute || h.Left != 24*time.Hour-10*time.Minute {
				t.Errorf("%s: age %v, left %v", l.Name, h.Age, h.Left)
			}
		}
		if len(l.Waiters) > 0 {
			t.Errorf("%s: waiters %+v of before the boot", l.Name, l.Waiters)
		}
	}
	if got, want := strings.Join(listed, ", "), "cooling cooling, cooling cooling, done done"; got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	for _, name := range []string{"held", "shared", "short"} {
		w.take(s, request(name))
	}
	w.pass(24 * time.Hour)
	for _, name := range []string{"done", "cooling"} {
		w.take(s, request(name))
	}
}

// Two containers under one kernel have different boot IDs and the same clock.
func TestAnotherBootIDOnTheSameClockEndsNothing(t *testing.T) {
	w := newHost(t)
	a := w.open()
	held, done := request("held"), request("done")
	last := max(w.take(a, held), w.take(a, done))
	must(t, a.Release(t.Context(), "done", done.ID, store.Keep{State: store.Done, For: time.Hour}))
	queue(t, a, "held")
	w.pass(time.Second / 2)
	for _, boot := range []string{"boot 2", "boot 1", "boot 2"} { // the containers open the file in turns
		w.boot = boot
		b := w.open()
		page, err := b.List(t.Context(), store.Query{})
		if err != nil || len(page.Locks) != 2 || len(page.Locks[0].Holders) != 1 || len(page.Locks[1].Holders) != 1 || len(page.Locks[1].Waiters) != 1 {
			t.Fatalf("locks %+v, error %v: want the holder, the kept record and the waiter", page.Locks, err)
		}
		if h := page.Locks[0].Holders[0]; h.State != store.Done || (h.Left+time.Second/2).Round(time.Millisecond) != time.Hour {
			t.Errorf("kept record %+v", h)
		}
		for _, name := range []string{"held", "done"} {
			refused(t, b, request(name))
		}
		for range 5 { // tokens grow across both sides
			last = above(t, w.pair(b), last)
			last = above(t, w.pair(a), last)
			w.pass(time.Microsecond)
		}
	}
	extended(t, a, renewal(held))
}

// A container that opens the file after the wall clock was set forward brings the tokens of all up to it.
func TestTokensFollowTheWallClockOnBothSides(t *testing.T) {
	w := newHost(t)
	a := w.open()
	last := w.pair(a)
	w.boot, w.wall = "boot 2", w.wall.Add(time.Hour)
	b := w.open()
	for range 5 {
		for _, s := range []*sqlitestore.Store{b, a} {
			w.pass(2 * time.Second)
			last = above(t, w.pair(s), last)
		}
	}
	if now := w.wall.UnixMicro(); last != now {
		t.Errorf("token %d at %d", last, now)
	}
}

// The machine has now been up for longer than it had been when the file was last used, so the
// clock does not show the reboot.
func TestARebootThatTheClockDoesNotShowEndsGrantsWithinTheirTTL(t *testing.T) {
	w := newHost(t)
	s := w.open()
	held := request("held")
	last := w.take(s, held)
	for range 10 { // held for much longer than its TTL
		w.pass(time.Minute / 2)
		extended(t, s, renewal(held))
	}
	for name, keep := range map[string]time.Duration{"day": 24 * time.Hour, "hour": time.Hour} {
		req := request(name)
		last = max(last, w.take(s, req))
		must(t, s.Release(t.Context(), name, req.ID, store.Keep{State: store.Done, For: keep}))
	}
	s.Close()

	w.boot, w.wall = "boot 2", w.wall.Add(20*time.Hour) // the clock has the same reading as before
	s = w.open()
	first := above(t, w.pair(s), last)
	w.take(s, request("hour")) // its record ended while the machine was off
	if left := refused(t, s, request("day")).Holders[0].Left; left != 4*time.Hour {
		t.Errorf("a kept record of a day after 20 hours: %v left", left)
	}
	refused(t, s, request("held")) // the holder might be alive
	w.pass(time.Minute + time.Second)
	if token := w.take(s, request("held")); token-first < int64(time.Minute/time.Microsecond) {
		t.Errorf("token %d is %d after the one of a minute ago, so it is not the time", token, token-first)
	}
}

// A power cut may lose the newest commits. In that case the file has an earlier reading of the
// clock than the last token, and the clock of the next boot may be between the two.
func TestTokensGrowOverAPowerCutThatTheClockDoesNotShow(t *testing.T) {
	w := newHost(t)
	s := w.open()
	w.pair(s)
	s.Close()
	saved, err := os.ReadFile(w.path)
	must(t, err)
	w.pass(10 * time.Second)
	s = w.open()
	w.pass(10 * time.Second)
	last := w.pair(s)
	s.Close()
	must(t, os.WriteFile(w.path, saved, 0o600))

	w.boot, w.now, w.wall = "boot 2", w.now-10*time.Second, w.wall.Add(time.Hour)
	s = w.open()
	for range 3 {
		last = above(t, w.pair(s), last)
		w.pass(time.Microsecond)
	}
}

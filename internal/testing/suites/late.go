package suites

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A LateBed delays one request of a store.
type LateBed struct {
	S, Other store.Store           // of two programs
	Delay    func(r store.Request) // acquires a name through S, and gives up while the request is on its way
	Arrive   func()                // lets the request arrive, and waits until the server has executed it
}

// Late checks that a request that arrives after the call that undoes it, because of the network or the server,
// is not granted. Otherwise the name would be held without a holder until the TTL is over.
func Late(t *testing.T, newBed func(t *testing.T) *LateBed) {
	run := func(what string, test func(t *testing.T, b *LateBed, r store.Request)) {
		t.Run(what, func(t *testing.T) { test(t, newBed(t), Request("late: "+what)) })
	}
	gone := func(t *testing.T, b *LateBed, r store.Request) {
		t.Helper()
		b.Arrive()
		Granted(t, b.Other, Request(r.Name))
	}
	run("after Leave", func(t *testing.T, b *LateBed, r store.Request) {
		b.Delay(r)
		Leave(t, b.S, r)
		gone(t, b, r)
	})
	for _, keep := range []store.Keep{{}, {State: store.Cooling, For: time.Millisecond}} {
		run(fmt.Sprint("repeated and released, ", keep.State), func(t *testing.T, b *LateBed, r store.Request) {
			b.Delay(r)
			Granted(t, b.S, r)
			must(t, b.S.Release(Limited(t), r.Name, r.ID, keep))
			Eventually(t, "the name is still closed", func() bool {
				page, err := b.Other.List(Limited(t), store.Query{Name: r.Name})
				return err == nil && len(page.Locks) == 0
			})
			gone(t, b, r)
		})
	}
	// Any program may break the grant without knowing that a request has no reply. If that request were granted,
	// the holder would renew its lease again, with a token below that of another holder.
	for _, who := range []string{"its own store", "another store"} {
		run("broken by "+who, func(t *testing.T, b *LateBed, r store.Request) {
			b.Delay(r)
			Granted(t, b.S, r)
			breaker := b.S
			if who == "another store" {
				breaker = b.Other
			}
			must(t, breaker.Break(Limited(t), r.Name, r.ID))
			next := Request(r.Name)
			Granted(t, b.Other, next)
			Release(t, b.Other, next)
			b.Arrive()
			out, err := b.S.Renew(Limited(t), []store.Renewal{Renewal(r)})
			if err != nil || out[0].Status != store.Gone {
				t.Errorf("Renew: %+v, %v; want that the grant is gone", out, err)
			}
			Granted(t, b.Other, Request(r.Name))
		})
	}
	// Neither a renewal nor a refused Release ends a grant, even if the first request for it had no reply.
	run("asked for again", func(t *testing.T, b *LateBed, r store.Request) {
		r.Mode = store.Shared
		b.Delay(r)
		first := Granted(t, b.S, r)
		same := func() {
			t.Helper()
			if again := Granted(t, b.S, r); again.Token != first.Token {
				t.Errorf("token %d, then %d", first.Token, again.Token)
			}
		}
		Extended(t, b.S, r)
		same()
		if err := b.S.Release(Limited(t), r.Name, r.ID, store.Keep{State: store.Done, For: time.Minute}); !errors.Is(err, store.ErrInvalid) {
			t.Fatalf("Release: %v", err)
		}
		same()
		b.Arrive()
	})
	// Break ends only grants. A waiter keeps its place, even if its first request is late.
	run("a waiter", func(t *testing.T, b *LateBed, r store.Request) {
		Granted(t, b.Other, Request(r.Name))
		r.Queue = true
		b.Delay(r)
		Refused(t, b.S, r)
		if err := b.S.Break(Limited(t), r.Name, r.ID); !errors.Is(err, store.ErrNotHeld) {
			t.Fatalf("Break: %v", err)
		}
		b.Arrive()
		if again := Refused(t, b.S, r); again.Place != 1 {
			t.Errorf("place %d, want 1", again.Place)
		}
	})
}

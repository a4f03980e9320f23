package rules

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	now       = 1000
	unit      = time.Millisecond
	heartbeat = 5 * time.Second
	askWithin = 2 * time.Second
)

// A name issues the token 1.
type name struct {
	Loaded
	woken []store.ID
}

func (n *name) Wake(w *Claim)                          { n.woken = append(n.woken, w.ID) }
func (n *name) Reserve(int, int64) (int64, int, error) { return 1, 1, nil }
func (n *name) Raise(int64) error                      { return nil }

func (n *name) call() *Call {
	return &Call{Name: n, Now: now, Unit: unit, Heartbeat: heartbeat, AskWithin: askWithin}
}

// until returns an exclusive claim that ends after a time.
func until(d time.Duration) *Claim {
	return &Claim{ID: store.NewID(), Mode: store.Exclusive, Weight: 1, Until: After(now, d, unit)}
}

// A refused request asks again when a claim expires that is in its way, but not too early and not so
// late that it would lose its place.
func TestARefusedRequestAsksAgainWhenItMayBeGranted(t *testing.T) {
	for _, test := range []struct {
		name    string
		holders []*Claim
		queue   []*Claim
		again   time.Duration
	}{
		{"in time to keep the place", []*Claim{until(time.Minute)}, nil, askWithin},
		{"when the holder expires", []*Claim{until(time.Second)}, nil, time.Second},
		{"when the first of several holders expires", []*Claim{until(time.Minute), until(time.Second)}, nil, time.Second},
		{"not before a while has passed", []*Claim{until(0)}, nil, MinAgain},
		{"not when the holder expires if another waiter is ahead", []*Claim{until(time.Second)}, []*Claim{until(time.Minute)}, askWithin},
		{"when a waiter ahead expires", []*Claim{until(time.Minute)}, []*Claim{until(time.Minute), until(time.Second)}, time.Second},
	} {
		for _, queue := range []bool{true, false} {
			n := &name{Loaded: Loaded{Holders: slices.Clone(test.holders), Queue: slices.Clone(test.queue)}}
			req := store.Request{Name: "n", ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: time.Second, Queue: queue}
			answer, err := n.call().Ask(&req)
			if err != nil || answer.Granted() {
				t.Fatalf("%s: %+v, %v", test.name, answer, err)
			}
			if answer.Refusal.Again != test.again {
				t.Errorf("%s: asks again after %v, want %v", test.name, answer.Refusal.Again, test.again)
			}
		}
	}
}

func TestAWaiterIsKeptForItsHeartbeatAndNotLess(t *testing.T) {
	n := &name{Loaded: Loaded{Holders: []*Claim{until(time.Minute)}}}
	req := store.Request{Name: "n", ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: time.Second, Queue: true}
	if _, err := n.call().Ask(&req); err != nil {
		t.Fatal(err)
	}
	if got, want := n.Queue[0].Until, int64(now+heartbeat/unit); got <= want {
		t.Errorf("expires at %d, want later than %d", got, want)
	}
}

// The waiter that makes a call has its reply. Another one that leaves through another handle of the
// store is told so.
func TestLeaveEndsTheWaitOfItsIdentity(t *testing.T) {
	first, second, third := until(time.Minute), until(time.Minute), until(time.Minute)
	n := &name{Loaded: Loaded{Holders: []*Claim{until(time.Minute)}, Queue: []*Claim{first, second, third}}}
	c := n.call()
	c.Leave(second.ID)
	c.Finish()
	if !slices.Equal(n.woken, []store.ID{second.ID}) || !slices.Equal(n.Queue, []*Claim{first, third}) {
		t.Errorf("woken %v, queue of %d", n.woken, len(n.Queue))
	}
}

func TestTimesDoNotOverflow(t *testing.T) {
	for _, test := range []struct {
		d, unit time.Duration
		want    int64
	}{
		{time.Second, time.Millisecond, now + 1000},
		{-time.Second, time.Millisecond, now - 1000},
		{math.MaxInt64, time.Nanosecond, math.MaxInt64},
		{math.MaxInt64, time.Microsecond, now + math.MaxInt64/1000},
	} {
		if got := After(now, test.d, test.unit); got != test.want {
			t.Errorf("%v after %d: %d, want %d", test.d, now, got, test.want)
		}
	}
}

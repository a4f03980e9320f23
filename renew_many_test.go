//go:build !race

package holdfast_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// The tests of this file need tens of thousands of leases, which take minutes with the race
// detector. Other tests of renewals use it.

// lockMany takes n names, evenly over a time.
func (w *world) lockMany(n int, over time.Duration) []*holdfast.Lease {
	leases := make([]*holdfast.Lease, n)
	for i := range leases {
		leases[i] = mustLock(w, w.c, fmt.Sprint(i))
		if i%100 == 0 {
			time.Sleep(over * 100 / time.Duration(n))
		}
	}
	return leases
}

func lost(leases []*holdfast.Lease) (n int) {
	for _, l := range leases {
		if l.Err() != nil {
			n++
		}
	}
	return n
}

// A server that continues executes all requests that it got while it hung, although nobody waits for
// the replies. A client must not send so many that its leases end before their turn, and must renew
// those first that end first, also if their last renewal has failed. Nor must it send so many afterwards
// that each of them, and with it every other call, takes long.
func TestRenewalsAfterAHangAreInTime(t *testing.T) {
	for name, test := range map[string]struct {
		taking, renewal, hang time.Duration
	}{
		"taken at once":       {0, 80 * time.Microsecond, 14 * time.Second},
		"one after the other": {10 * time.Second, 190 * time.Microsecond, 14 * time.Second},
		"a longer hang":       {10 * time.Second, 190 * time.Microsecond, 16 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				server := make(chan struct{}, 1) // executes one request at a time
				var longest atomic.Int64         // time that a call took
				w.p.renew.set(func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
					begin := time.Now()
					defer func() { longest.Store(max(longest.Load(), int64(time.Since(begin)))) }()
					replies := make(chan []store.Renewed, 1)
					go func() {
						server <- struct{}{}
						defer func() { <-server }()
						time.Sleep(time.Duration(len(grants)) * test.renewal)
						outcomes, _ := w.s.Renew(context.WithoutCancel(ctx), grants)
						replies <- outcomes
					}()
					select {
					case outcomes := <-replies:
						return outcomes, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				leases := w.lockMany(40_000, test.taking)
				time.Sleep(9 * time.Second)
				server <- struct{}{}
				time.Sleep(test.hang) // the first leases end after 29 s
				<-server
				time.Sleep(4 * time.Second) // until the calls that were sent during the hang have returned
				longest.Store(0)
				time.Sleep(16 * time.Second)
				if took, limit := time.Duration(longest.Load()), 2500*time.Millisecond; took > limit {
					w.Errorf("a call took %v, want %v at most", took, limit)
				}
				equal(w, "leases lost", lost(leases), 0)
				time.Sleep(30 * time.Second) // the server has executed everything
			})
		})
	}
}

// Every call renews leases of each part.
func TestAPartOfAStoreThatDoesNotAnswerCostsNoLeaseOfTheOthers(t *testing.T) {
	bubble(t, func(w *world) {
		var hung atomic.Bool
		silent := func(name string) bool { return hung.Load() && name[len(name)-1]%3 == 0 }
		w.p.renew.set(func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
			outcomes, err := w.s.Renew(ctx, slices.DeleteFunc(slices.Clone(grants), func(g store.Renewal) bool { return silent(g.Name) }))
			if err != nil {
				return nil, err
			}
			time.Sleep(time.Duration(len(outcomes)) * 20 * time.Microsecond)
			for i, g := range grants {
				if silent(g.Name) {
					outcomes = slices.Insert(outcomes, i, store.Renewed{})
				}
			}
			if slices.ContainsFunc(grants, func(g store.Renewal) bool { return silent(g.Name) }) {
				<-ctx.Done()
			}
			return outcomes, nil
		})
		leases := w.lockMany(100_000, 10*time.Second)
		time.Sleep(5 * time.Second)
		hung.Store(true)
		time.Sleep(time.Minute)
		leases = slices.DeleteFunc(leases, func(l *holdfast.Lease) bool { return silent(l.Name()) })
		equal(w, "leases of the other parts lost", lost(leases), 0)
	})
}

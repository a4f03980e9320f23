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
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// The tests of this file need tens of thousands of leases, which take minutes with the race
// detector. Other tests of renewals use it.

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
			bubble(t, func(t *testing.T) {
				p := newProxy(memstore.New())
				c := newClient(t, p)
				server := make(chan struct{}, 1) // executes one request at a time
				var longest atomic.Int64         // time that a call took
				p.set(func() {
					p.renew = func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
						begin := time.Now()
						defer func() { longest.Store(max(longest.Load(), int64(time.Since(begin)))) }()
						type reply struct {
							outcomes []store.Renewed
							err      error
						}
						replies := make(chan reply, 1)
						go func() {
							server <- struct{}{}
							defer func() { <-server }()
							time.Sleep(time.Duration(len(grants)) * test.renewal)
							outcomes, err := p.Store.Renew(context.WithoutCancel(ctx), grants)
							replies <- reply{outcomes, err}
						}()
						select {
						case r := <-replies:
							return r.outcomes, r.err
						case <-ctx.Done():
							return nil, ctx.Err()
						}
					}
				})
				const n = 40_000
				leases := make([]*holdfast.Lease, n)
				for i := range leases {
					leases[i] = mustLock(t, c, fmt.Sprint(i))
					if i%40 == 0 {
						time.Sleep(test.taking * 40 / n)
					}
				}
				time.Sleep(9 * time.Second)
				server <- struct{}{}
				time.Sleep(test.hang) // the first leases end after 29 s
				<-server
				time.Sleep(4 * time.Second) // until the calls that were sent during the hang have returned
				longest.Store(0)
				time.Sleep(16 * time.Second)
				if took, limit := time.Duration(longest.Load()), 2500*time.Millisecond; took > limit {
					t.Errorf("a call took %v, want %v at most", took, limit)
				}
				lost := 0
				for _, l := range leases {
					if l.Err() != nil {
						lost++
					}
				}
				if lost > 0 {
					t.Errorf("%d of %d leases were lost", lost, n)
				}
				time.Sleep(30 * time.Second) // the server has executed everything
			})
		})
	}
}

// Every call renews leases of each part.
func TestAPartOfAStoreThatDoesNotAnswerCostsNoLeaseOfTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		var hung atomic.Bool
		silent := func(name string) bool { return hung.Load() && name[len(name)-1]%3 == 0 }
		p.set(func() {
			p.renew = func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				outcomes, err := p.Store.Renew(ctx, slices.DeleteFunc(slices.Clone(grants), func(g store.Renewal) bool { return silent(g.Name) }))
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
			}
		})
		const n = 100_000
		leases := make([]*holdfast.Lease, n)
		for i := range leases {
			leases[i] = mustLock(t, c, fmt.Sprint(i))
			if i%100 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		time.Sleep(5 * time.Second)
		hung.Store(true)
		time.Sleep(time.Minute)
		lost := 0
		for _, l := range leases {
			if !silent(l.Name()) && l.Err() != nil {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%d leases of the other parts were lost", lost)
		}
	})
}

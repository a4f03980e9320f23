package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// Many clients with stores of their own contend for one name, over nodes that are slow and lose messages.
func TestClientsThatPassVotesOnExcludeEachOther(t *testing.T) {
	for seed := range uint64(24) {
		synctest.Test(t, func(t *testing.T) { contend(t, seed) })
	}
}

func contend(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	n := 3 + 2*int(seed%2)
	var servers []*memstore.Store
	for range n {
		servers = append(servers, memstore.New())
	}
	loss := []float64{0, 0.002, 0.02}[seed/2%3]
	var mu sync.Mutex
	chance := func(p float64) bool { mu.Lock(); defer mu.Unlock(); return rnd.Float64() < p }
	between := func(a, b time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return a + time.Duration(rnd.Int64N(int64(b-a+1)))
	}
	var stores []*quorum.Store
	for range 6 {
		var nodes []quorum.Node
		for i := range n {
			g := &gate{Store: servers[i]}
			delay := func(ctx context.Context, call string) error {
				time.Sleep(between(0, time.Millisecond))
				if chance(loss) {
					if chance(0.5) {
						time.Sleep(between(0, 800*time.Millisecond)) // late
						if ctx.Err() != nil && chance(0.5) {
							return ctx.Err()
						}
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
			g.set(delay, delay)
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: g})
		}
		stores = append(stores, openQuorum(t, nodes, quorum.Options{}))
	}
	type lease struct {
		id    store.ID
		token int64
		until time.Time
	}
	var held *lease // believed valid
	var last int64
	var hmu sync.Mutex
	granted := func(id store.ID, token int64, until time.Time) {
		hmu.Lock()
		defer hmu.Unlock()
		if held != nil && held.id != id && time.Now().Before(held.until) {
			t.Errorf("seed %d at %v: granted %d to %v while %d of %v is valid for %v", seed, time.Now().Format("05.000000"), token, id, held.token, held.id, time.Until(held.until))
		}
		if token <= last && (held == nil || held.id != id) {
			t.Errorf("seed %d: token %d after %d", seed, token, last)
		}
		if held != nil && held.id == id && token < held.token {
			t.Errorf("seed %d: token %d after %d of the same", seed, token, held.token)
		}
		last = max(last, token)
		held = &lease{id, token, until}
	}
	drop := func(id store.ID) {
		hmu.Lock()
		defer hmu.Unlock()
		if held != nil && held.id == id {
			held = nil
		}
	}
	var wg sync.WaitGroup
	end := time.Now().Add(20 * time.Second)
	for c := range 12 {
		q := stores[c%len(stores)]
		wg.Go(func() {
			ctx := context.Background()
			for time.Now().Before(end) {
				req := queued("n")
				req.TTL = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 30 * time.Second}[int(between(0, 3))]
				if seed%3 == 0 {
					req.TTL = 30 * time.Second
				}
				req.Tokens = 1 + int(between(0, 3))
				giveUp := time.Now().Add(between(time.Millisecond, 3*time.Second))
				ok := false
				for time.Now().Before(giveUp) {
					sent := time.Now()
					cctx, cancel := context.WithDeadline(ctx, giveUp)
					a, err := q.Acquire(cctx, req)
					cancel()
					if err == nil && a.Granted() {
						if time.Now().Before(sent.Add(a.TTL)) {
							granted(req.ID, a.Token, sent.Add(a.TTL))
							ok = true
							top := a.Token
							if chance(0.1) { // repeat
								sent := time.Now()
								cctx, cancel := context.WithTimeout(ctx, 600*time.Millisecond)
								b, err := q.Acquire(cctx, req)
								cancel()
								if err == nil && b.Granted() && time.Now().Before(sent.Add(b.TTL)) {
									granted(req.ID, b.Token, sent.Add(b.TTL))
								}
								if err == nil && b.Granted() {
									top = max(top, b.Token)
								}
							}
							if chance(0.3) {
								time.Sleep(between(0, 40*time.Millisecond))
							}
							for chance(0.2) {
								sent := time.Now()
								out, err := q.Renew(ctx, []store.Renewal{{Name: "n", ID: req.ID, TTL: req.TTL, Mode: store.Exclusive}})
								if err == nil && out[0].Status == store.Extended && time.Now().Before(sent.Add(out[0].TTL)) {
									hmu.Lock()
									if held != nil && held.id != req.ID && time.Now().Before(held.until) {
										t.Errorf("seed %d: extended beside", seed)
									}
									hmu.Unlock()
									granted(req.ID, top, sent.Add(out[0].TTL))
								}
								time.Sleep(between(0, 100*time.Millisecond))
							}
						}
						break
					}
					if err == nil {
						cctx, cancel := context.WithTimeout(ctx, a.Refusal.Again)
						q.Wait(cctx, "n", req.ID)
						cancel()
					} else {
						time.Sleep(between(0, 50*time.Millisecond))
					}
				}
				drop(req.ID)
				if ok {
					err := q.Release(ctx, "n", req.ID, store.Keep{})
					if err == store.ErrNotHeld && loss == 0 && req.TTL > time.Second {
						t.Errorf("seed %d release: %v", seed, err)
					}
					if err != nil {
						q.Leave(ctx, "n", req.ID)
					}
				} else {
					q.Leave(ctx, "n", req.ID)
				}
			}
		})
	}
	wg.Wait()
	var passes uint64
	for _, q := range stores {
		passes += q.Passes()
	}
	if passes == 0 && loss == 0 {
		t.Errorf("seed %d: no votes were passed on", seed)
	}
	time.Sleep(5 * time.Second)
	left := 0
	if loss == 0 {
		for _, s := range servers {
			page, _ := s.List(context.Background(), store.Query{Name: "n"})
			for _, l := range page.Locks {
				left += len(l.Holders) + len(l.Waiters)
			}
		}
	}
	if left > 0 {
		t.Errorf("seed %d: %d left", seed, left)
	}
	for _, q := range stores {
		q.Close()
	}
	for _, s := range servers {
		s.Close()
	}
}

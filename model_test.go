package holdfast_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A record is a lease that was granted.
type record struct {
	lease  *holdfast.Lease
	done   <-chan struct{}
	ctx    context.Context
	weight int
	who    int
}

// A model knows what was granted, and finds what must not be.
type model struct {
	t     *testing.T
	mu    sync.Mutex
	live  map[string][]*record
	high  map[string]int64
	loose bool // Break was used: exclusion is not promised
	limit int
}

func (m *model) highest(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.high[name]
}

func (m *model) granted(name string, l *holdfast.Lease, weight, who int, before int64) *record {
	r := &record{lease: l, done: l.Done(), ctx: l.Context(context.Background()), weight: weight, who: who}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.Token() <= before && !m.loose && l.Mode() != store.Shared { // readers may share an earlier grant
		m.t.Errorf("G3: %s token %d, an earlier grant had %d", name, l.Token(), before)
	}
	m.high[name] = max(m.high[name], l.Token())
	alive := !isDone(r.done)
	var keep []*record
	sum := weight
	for _, o := range m.live[name] {
		if isDone(o.done) {
			continue
		}
		keep = append(keep, o)
		if !alive || m.loose {
			continue
		}
		a, b := l.Mode(), o.lease.Mode()
		if isDone(o.done) || isDone(r.done) {
			continue
		}
		if a == store.Exclusive || b == store.Exclusive || a != b {
			m.t.Errorf("G1: %s held as %v (token %d, worker %d) beside %v (token %d, worker %d, deadline in %v)", name, a, l.Token(), who, b, o.lease.Token(), o.who, time.Until(o.lease.Deadline()))
		}
		sum += o.weight
	}
	if l.Mode() == store.Permits && sum > m.limit && alive && !m.loose {
		m.t.Errorf("G1: %d permits of %d", sum, m.limit)
	}
	m.live[name] = append(keep, r)
	return r
}

func runModel(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table := memstore.New()
		m := &model{t: t, live: map[string][]*record{}, high: map[string]int64{}, limit: 3, loose: seed%5 == 0}
		instant := seed%7 == 1
		noQueue := seed%7 == 2
		level := []int{0, 5, 20, 50}[rng.IntN(4)]
		if instant {
			level = 0
		}
		var pmu sync.Mutex
		var proxies []*chaos
		var all []*holdfast.Client
		newOne := func() *holdfast.Client {
			p := &chaos{Store: table, rng: rand.New(rand.NewPCG(seed, rng.Uint64())), on: true, instant: instant, noQueue: noQueue, level: level}
			opts := []holdfast.Option{holdfast.WithTTL(time.Second)}
			switch rng.IntN(4) {
			case 0:
				opts = append(opts, holdfast.WithHandover(0, 0))
			case 1:
				opts = append(opts, holdfast.WithHandover(3, 20*time.Millisecond))
			}
			if rng.IntN(2) == 0 {
				opts = append(opts, holdfast.WithObserver(func(holdfast.Event) {}))
			}
			c := mustNew(t, p, opts...)
			proxies = append(proxies, p)
			all = append(all, c)
			return c
		}
		clients := make([]*holdfast.Client, 3)
		for i := range clients {
			clients[i] = newOne()
		}
		client := func(r *rand.Rand) *holdfast.Client {
			pmu.Lock()
			defer pmu.Unlock()
			return clients[r.IntN(len(clients))]
		}
		var wg sync.WaitGroup
		bg := context.Background()
		allowed := []error{holdfast.ErrHeld, holdfast.ErrClosed, holdfast.ErrUnavailable, context.Canceled, context.DeadlineExceeded, holdfast.ErrLost, holdfast.ErrDone, holdfast.ErrNotHeld}
		check := func(what string, err error) {
			if err == nil {
				return
			}
			for _, a := range allowed {
				if errors.Is(err, a) {
					return
				}
			}
			t.Errorf("%s: unexpected error %v", what, err)
		}
		for who := range 20 {
			wr := rand.New(rand.NewPCG(seed, uint64(1000+who)))
			wg.Go(func() {
				for range 15 {
					time.Sleep(time.Duration(wr.IntN(300)) * time.Millisecond)
					c := client(wr)
					ctx, cancel := context.WithCancel(bg)
					switch wr.IntN(4) {
					case 0:
						ctx, cancel = context.WithTimeout(bg, time.Duration(wr.IntN(2000))*time.Millisecond)
					case 1:
						d := time.Duration(wr.IntN(1500)) * time.Millisecond
						cc := cancel
						tm := time.AfterFunc(d, cc)
						defer tm.Stop()
					}
					var opts []holdfast.CallOption
					if wr.IntN(6) == 0 {
						opts = append(opts, holdfast.Meta("x"))
					}
					if wr.IntN(8) == 0 {
						opts = append(opts, holdfast.TTL(300*time.Millisecond))
					}
					if wr.IntN(10) == 0 {
						opts = append(opts, holdfast.NoRenew())
					}
					if wr.IntN(10) == 0 {
						opts = append(opts, holdfast.MaxHold(700*time.Millisecond))
					}
					if wr.IntN(12) == 0 {
						opts = append(opts, holdfast.MinHold(200*time.Millisecond))
					}
					name := fmt.Sprint("n", wr.IntN(3))
					before := m.highest(name)
					var l *holdfast.Lease
					var err error
					weight := 1
					switch wr.IntN(9) {
					case 0, 1, 2:
						l, err = c.Lock(ctx, name, opts...)
					case 3:
						l, err = c.TryLock(ctx, name, opts...)
					case 4, 5:
						l, err = c.RLock(ctx, name, opts...)
					case 6:
						l, err = c.TryRLock(ctx, name, opts...)
					case 7:
						name = "sem"
						before = m.highest(name)
						weight = 1 + wr.IntN(3)
						l, err = c.Semaphore(name, 3).Acquire(ctx, weight, opts...)
					case 8:
						var set *holdfast.LeaseSet
						b0, b1 := m.highest("n0"), m.highest("n1")
						set, err = c.LockAll(ctx, []string{"n1", "n0"}, opts...)
						if err == nil {
							m.granted("n0", set.Lease("n0"), 1, who, b0)
							m.granted("n1", set.Lease("n1"), 1, who, b1)
							time.Sleep(time.Duration(wr.IntN(300)) * time.Millisecond)
							check("unlock set", set.Unlock(ctx))
						}
						check("lock all", err)
						cancel()
						continue
					}
					check("take", err)
					if (l == nil) == (err == nil) {
						t.Errorf("%v, %v", l, err)
					}
					if err != nil {
						cancel()
						continue
					}
					m.granted(name, l, weight, who, before)
					for range wr.IntN(3) {
						time.Sleep(time.Duration(wr.IntN(500)) * time.Millisecond)
						switch wr.IntN(4) {
						case 0:
							check("renew", l.Renew(ctx))
						case 1:
							if l.Mode() == store.Exclusive {
								check("downgrade", l.Downgrade(ctx))
							}
						case 2:
							in, err := c.Lock(l.Context(bg), name, holdfast.Reentrant(), holdfast.Wait(time.Second))
							if err == nil {
								if in.Token() != l.Token() && l.Err() == nil {
									t.Error("reentrant token")
								}
								in.Unlock(ctx)
							}
						case 3:
							if seed%5 == 0 && wr.IntN(3) == 0 {
								table.Break(bg, name, l.ID())
							}
						}
					}
					if wr.IntN(15) == 0 {
						cancel()
						continue // forgets to unlock
					}
					err = l.Unlock(ctx)
					check("unlock", err)
					if !isDone(l.Done()) && !errors.Is(err, holdfast.ErrClosed) {
						t.Error("Done is open after Unlock", err, l.Err())
					}
					cancel()
				}
			})
		}
		wg.Go(func() { // closes clients
			for range 2 {
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
				pmu.Lock()
				i := rng.IntN(len(clients))
				old := clients[i]
				clients[i] = newOne()
				pmu.Unlock()
				old.Close()
			}
			time.Sleep(20 * time.Second)
			// forgotten leases hold names for ever: the last clients let go of them
			pmu.Lock()
			for _, p := range proxies {
				p.mu.Lock()
				p.on = false
				p.mu.Unlock()
			}
			for i := range clients {
				old := clients[i]
				clients[i] = newOne()
				proxies[len(proxies)-1].on = false
				go old.Close()
			}
			pmu.Unlock()
			for range 200 { // break what is forgotten so that all end
				time.Sleep(10 * time.Second)
				page, _ := table.List(bg, store.Query{})
				m.mu.Lock()
				m.loose = true
				m.mu.Unlock()
				for _, lk := range page.Locks {
					for _, h := range lk.Holders {
						if h.Age > 20*time.Second {
							table.Break(bg, lk.Name, h.ID)
						}
					}
				}
			}
		})
		wg.Wait()
		for _, c := range all {
			c.Close()
		}
		time.Sleep(time.Minute)
		page, _ := table.List(bg, store.Query{})
		if len(page.Locks) > 0 {
			t.Errorf("left in the store: %+v", page.Locks)
		}
		for i, c := range all {
			if n := holdfast.HeapOf(c); n > 0 {
				t.Errorf("client %d: %d in the heap", i, n)
			}
		}
	})
}

// Random histories of many goroutines, clients that come and go, and a store on which
// everything goes wrong. To see one again: go test -run RandomHistories -seed N -seeds 1.
func TestRandomHistoriesKeepThePromises(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runModel(t, seed) })
	}
}

var (
	firstSeed = flag.Uint64("seed", 1, "the first random history to run")
	seeds     = flag.Uint64("seeds", 40, "how many of them")
)

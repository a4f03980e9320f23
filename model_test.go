package holdfast_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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

// A model records the granted leases, and detects violations.
type model struct {
	t     *testing.T
	mu    sync.Mutex
	live  map[string][]*record
	high  map[string]int64
	until map[string]time.Time // when a MinHold of the name ends
	loose bool                 // Break was used, so exclusion is not promised
	limit int
}

func (m *model) highest(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.high[name]
}

func (m *model) granted(name string, l *holdfast.Lease, weight, who int, before int64) {
	r := &record{lease: l, done: l.Done(), ctx: l.Context(context.Background()), weight: weight, who: who}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.Token() <= before && !m.loose && l.Mode() != store.Shared { // readers may share an earlier grant
		m.t.Errorf("G3: %s token %d, an earlier grant had %d", name, l.Token(), before)
	}
	m.high[name] = max(m.high[name], l.Token())
	if time.Now().Before(m.until[name]) && !m.loose && l.Mode() != store.Shared {
		m.t.Errorf("MinHold: %s granted %v too early", name, time.Until(m.until[name]))
	}
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
}

// unlocked records that a lease with a MinHold was released by a call that began at that time.
func (m *model) unlocked(name string, mode store.Mode, begin time.Time, minHold time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if until := begin.Add(minHold); mode == store.Exclusive && until.After(m.until[name]) {
		m.until[name] = until
	}
}

// inStore checks that the store has the grant of a live lease, for at least as long as the lease
// lasts.
func (m *model) inStore(table *memstore.Store, name string, l *holdfast.Lease) {
	deadline := l.Deadline()
	page, _ := table.List(context.Background(), store.Query{Name: name})
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.Err() != nil || m.loose {
		return
	}
	for _, lock := range page.Locks {
		for _, h := range lock.Holders {
			if h.ID == l.ID() && h.State == store.Held && h.Left >= time.Until(deadline) {
				return
			}
		}
	}
	m.t.Errorf("G2: %s: the lease with token %d believes in %v more, the store has %+v", name, l.Token(), time.Until(deadline), page.Locks)
}

// A tally counts waiting calls, held leases and calls that have ended from the events.
type tally struct{ waiting, held, ended atomic.Int64 }

func (c *tally) observe(e holdfast.Event) {
	switch e.Kind {
	case holdfast.EventWaiting:
		c.waiting.Add(1)
	case holdfast.EventAcquired, holdfast.EventHandedOver:
		c.ended.Add(1)
		c.held.Add(1)
	case holdfast.EventGaveUp:
		c.ended.Add(1)
	case holdfast.EventReleased, holdfast.EventLost:
		c.held.Add(-1)
	}
	if e.Queued {
		c.waiting.Add(-1)
	}
}

func runModel(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table := memstore.New()
		m := &model{t: t, live: map[string][]*record{}, high: map[string]int64{}, until: map[string]time.Time{}, limit: 3, loose: seed%5 == 0}
		instant := seed%7 == 1
		noQueue := seed%7 == 2
		level := []int{0, 5, 20, 50}[rng.IntN(4)]
		if instant {
			level = 0
		}
		var pmu sync.Mutex
		var calm atomic.Bool // no more faults
		var tallies []*tally
		var all []*holdfast.Client
		newOne := func() *holdfast.Client {
			p := &chaos{Store: table, rng: rand.New(rand.NewPCG(seed, rng.Uint64())), calm: &calm, instant: instant, noQueue: noQueue, short: seed%3 == 0, level: level}
			opts := []holdfast.Option{holdfast.WithTTL(time.Second)}
			switch rng.IntN(4) {
			case 0:
				opts = append(opts, holdfast.WithHandover(0, 0))
			case 1:
				opts = append(opts, holdfast.WithHandover(3, 20*time.Millisecond))
			}
			if rng.IntN(2) == 0 {
				counts := new(tally)
				tallies = append(tallies, counts)
				opts = append(opts, holdfast.WithObserver(counts.observe))
			}
			c := mustNew(t, p, opts...)
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
		some := func(r *rand.Rand, n int) time.Duration { // in half of the runs, many events are simultaneous
			if seed%2 == 0 {
				return time.Duration(r.IntN(n)/50*50) * time.Millisecond
			}
			return time.Duration(r.IntN(n)) * time.Millisecond
		}
		allowed := []error{
			holdfast.ErrHeld, holdfast.ErrClosed, holdfast.ErrUnavailable, context.Canceled, context.DeadlineExceeded,
			holdfast.ErrLost, holdfast.ErrDone, holdfast.ErrNotHeld,
		}
		check := func(what string, err error) {
			if err != nil && !slices.ContainsFunc(allowed, func(target error) bool { return errors.Is(err, target) }) {
				t.Errorf("%s: unexpected error %v", what, err)
			}
		}
		// act takes a random lock, uses it, and mostly unlocks it.
		act := func(who int, wr *rand.Rand) {
			time.Sleep(some(wr, 300))
			c := client(wr)
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			switch wr.IntN(4) {
			case 0:
				ctx, cancel = context.WithTimeout(ctx, time.Duration(wr.IntN(2000))*time.Millisecond)
				defer cancel()
			case 1:
				defer time.AfterFunc(some(wr, 1500), cancel).Stop()
			}
			var opts []holdfast.CallOption
			maybe := func(n int, opt holdfast.CallOption) (added bool) {
				if added = wr.IntN(n) == 0; added {
					opts = append(opts, opt)
				}
				return added
			}
			maybe(6, holdfast.Meta("x"))
			maybe(8, holdfast.TTL(300*time.Millisecond))
			maybe(10, holdfast.NoRenew())
			var maxHold, minHold time.Duration
			if maybe(10, holdfast.MaxHold(700*time.Millisecond)) {
				maxHold = 700 * time.Millisecond
			}
			if maybe(12, holdfast.MinHold(200*time.Millisecond)) {
				minHold = 200 * time.Millisecond
			}
			name := fmt.Sprint("n", wr.IntN(3))
			before := m.highest(name)
			var l *holdfast.Lease
			var err error
			weight := 1
			begin := time.Now()
			if wr.IntN(10) == 0 && !noQueue {
				check("once", c.Once(ctx, name, 250*time.Millisecond, func(ctx context.Context) error {
					m.granted(name, holdfast.LeaseFrom(ctx), 1, who, before)
					time.Sleep(some(wr, 300))
					if wr.IntN(3) == 0 {
						return holdfast.ErrHeld // an error that the check below allows
					}
					return nil
				}, opts...))
				return
			}
			if maybe(8, holdfast.Wait(time.Millisecond+some(wr, 1000))) {
				maybe(2, holdfast.Retry(holdfast.MaxAttempts(3, holdfast.Every(300*time.Millisecond))))
			}
			kind := wr.IntN(9)
			if kind == 3 || kind == 6 {
				opts = nil
				maxHold, minHold = 0, 0
			}
			switch kind {
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
					m.inStore(table, "n0", set.Lease("n0"))
					m.granted("n0", set.Lease("n0"), 1, who, b0)
					m.granted("n1", set.Lease("n1"), 1, who, b1)
					time.Sleep(some(wr, 300))
					check("unlock set", set.Unlock(ctx))
				}
				check("lock all", err)
				return
			}
			check("take", err)
			if (l == nil) == (err == nil) {
				t.Errorf("%v, %v", l, err)
			}
			if err != nil {
				return
			}
			m.granted(name, l, weight, who, before)
			got := time.Now()
			for range wr.IntN(4) {
				time.Sleep(some(wr, 500))
				m.inStore(table, name, l)
				if maxHold > 0 && time.Since(got) > maxHold && l.Err() == nil {
					t.Errorf("MaxHold: held for %v", time.Since(got))
				}
				switch wr.IntN(5) {
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
					set, err := c.LockAll(l.Context(ctx), []string{name, "n2", "n9"}, holdfast.Reentrant(), holdfast.Wait(time.Duration(wr.IntN(2))*100*time.Millisecond), holdfast.MinHold(time.Millisecond))
					if err == nil {
						set.Unlock(ctx)
					} else if !errors.Is(err, holdfast.ErrWouldDeadlock) {
						check("inner lock all", err)
					}
				case 4:
					if seed%5 == 0 && wr.IntN(3) == 0 {
						table.Break(bg, name, l.ID())
					}
				}
			}
			if wr.IntN(15) == 0 {
				return // forgets to unlock
			}
			mode := l.Mode()
			err = l.Unlock(ctx)
			check("unlock", err)
			if err == nil && minHold > 0 {
				m.unlocked(name, mode, begin, minHold)
			}
			if !isDone(l.Done()) && !errors.Is(err, holdfast.ErrClosed) {
				t.Error("Done is open after Unlock", err, l.Err())
			}
		}
		for who := range 20 {
			wr := rand.New(rand.NewPCG(seed, uint64(1000+who)))
			wg.Go(func() {
				for range 15 {
					act(who, wr)
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
			// Leases that are never unlocked hold names forever. The last clients release them.
			pmu.Lock()
			calm.Store(true)
			for i := range clients {
				old := clients[i]
				clients[i] = newOne()
				go old.Close()
			}
			pmu.Unlock()
			for range 200 { // break the leases that were never unlocked, so that all calls end
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
		if page, _ := table.List(bg, store.Query{}); len(page.Locks) > 0 {
			t.Errorf("left in the store: %+v", page.Locks)
		}
		for i, c := range all {
			if n := holdfast.HeapOf(c); n > 0 {
				t.Errorf("client %d: %d in the heap", i, n)
			}
		}
		for i, counts := range tallies {
			if w, h := counts.waiting.Load(), counts.held.Load(); w != 0 || h != 0 {
				t.Errorf("observer %d: %d calls wait and %d leases are held", i, w, h)
			}
		}
	})
}

// The test runs random histories of many goroutines, with clients that are opened and closed and
// with a faulty store. To repeat one: go test -run RandomHistories -seed N -seeds 1.
func TestRandomHistoriesKeepThePromises(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runModel(t, seed) })
	}
}

var (
	firstSeed = flag.Uint64("seed", 1, "the first random history to run")
	seeds     = flag.Uint64("seeds", 40, "how many of them")
)

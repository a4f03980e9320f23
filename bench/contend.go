package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

// hangs is how long to wait for goroutines, because a peer that misses a wake-up waits forever.
const hangs = 5 * time.Second

// A rush is the result of goroutines that lock and unlock repeatedly.
type rush struct {
	pairs       []float64 // of each goroutine
	total       float64   // of the pairs
	waits       []float64 // for the lock, in ms
	took, cpu   time.Duration
	allocations float64
}

func (r *rush) rate() float64 { return r.total / r.took.Seconds() }

// perPair returns the part of a time that one pair took, in µs.
func (r *rush) perPair(d time.Duration) float64 { return float64(d.Microseconds()) / max(1, r.total) }

// contend lets lockers take and release one name repeatedly. Unfinished waits count with their time so far.
func contend(lockers []*locker, name string, d time.Duration) (*rush, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return rushFor(ctx, lockers, func(int) string { return name }, d)
}

// countPairs lets goroutines take and release a name each for a time.
func countPairs(l *locker, prefix string, goroutines int, d time.Duration) (*rush, error) {
	return rushFor(context.Background(), slices.Repeat([]*locker{l}, goroutines), func(i int) string { return fmt.Sprintf("%s:%d", prefix, i) }, d)
}

func rushFor(ctx context.Context, lockers []*locker, name func(i int) string, d time.Duration) (*rush, error) {
	waits, errs := make([][]float64, len(lockers)), make([]error, len(lockers))
	r := &rush{pairs: make([]float64, len(lockers))}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, used := time.Now(), processorTime()
	end := begin.Add(d)
	contended := ctx.Done() != nil
	var wg sync.WaitGroup
	for i, l := range lockers {
		wg.Go(func() {
			name, n, own := name(i), 0, []float64(nil)
			for asked := time.Now(); asked.Before(end); asked = time.Now() {
				h, err := l.lock(ctx, name)
				if contended {
					own = append(own, time.Since(asked).Seconds()*1000)
				}
				late := ctx.Err() != nil
				if err == nil {
					err = h.Unlock(context.Background())
				} else if late {
					break
				}
				if err != nil {
					errs[i] = err
					break
				}
				if !late {
					n++
				}
			}
			r.pairs[i], waits[i] = float64(n), own
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(d + hangs):
		return nil, errors.New("some goroutines hang")
	}
	r.took, r.cpu = time.Since(begin), processorTime()-used
	runtime.ReadMemStats(&after)
	for _, n := range r.pairs {
		r.total += n
	}
	r.allocations = float64(after.Mallocs-before.Mallocs) / max(1, r.total)
	r.waits = slices.Concat(waits...)
	return r, errors.Join(errs...)
}

// ownNames measures pairs without contention. The turns of a single goroutine have many parts, because
// the speed of a shared machine changes within a second. Many goroutines start and end too slowly for that.
func (b *bench) ownNames(s *system, goroutines int) {
	parts, work := 1, s.work(fmt.Sprintf("%d goroutines, own names", goroutines))
	if goroutines == 1 {
		parts, work = 30, s.work("1 goroutine, own name")
	}
	var turns []turn
	peers := b.wanted(s.peers)
	for _, p := range peers {
		l := b.open(s, p)
		defer l.close()
		turns = append(turns, turn{p.name, func() []figure {
			server := b.serverTime(s)
			r := must.Get(countPairs(l, p.name+":own", goroutines, b.time/time.Duration(parts)))
			figures := []figure{{"", pairs, r.rate()}, {"allocations", "/pair", r.allocations}, {"client", "µs of a core/pair", r.perPair(r.cpu)}}
			if s == redisServer {
				figures = append(figures, figure{"server", "µs of a core/pair", r.perPair(b.serverTime(s) - server)})
			}
			return figures
		}, p.foreign()})
	}
	b.measure(work, parts, turns)
	b.compare(work, peers, peers)
}

// A shape is a distribution of goroutines over clients.
type shape struct{ clients, goroutines int }

func (s shape) String() string { return fmt.Sprintf("%d×%d", s.clients, s.goroutines) }

// openShape opens clients, each with its own connection, and returns a locker for each goroutine.
func openShape(p peer, addr string, of shape) (lockers []*locker, end func()) {
	for range of.clients {
		lockers = append(lockers, slices.Repeat([]*locker{p.open(addr)}, of.goroutines)...)
	}
	return lockers, func() {
		for i := range of.clients {
			lockers[i*of.goroutines].close()
		}
	}
}

// contention returns a turn in which goroutines contend for a name.
func contention(who string, foreign bool, lockers []*locker, name string, d time.Duration) turn {
	return turn{who, func() []figure {
		r := must.Get(contend(lockers, name, d))
		p99, idlest := quantile(r.waits, 0.99), slices.Min(r.pairs)
		return []figure{
			{"", pairs, r.rate()},
			{"p99 wait", "ms", p99},
			{"busiest / idlest", "×", slices.Max(r.pairs) / max(1, idlest)},
			{"pairs of the idlest", "pairs", idlest},
			// In order of arrival, a waiter waits for the pairs of all others.
			{"p99 wait / (waiters × hand-off)", "×", p99 / 1000 * r.rate() / float64(len(lockers))},
		}
	}, foreign}
}

// oneName measures goroutines that contend for one name, in turns that show whether a client starves.
func (b *bench) oneName(s *system, of shape) {
	work := s.work("one name, " + of.String() + " clients × goroutines")
	switch {
	case of.clients == 1:
		work = s.work(fmt.Sprintf("%d goroutines, one name, one client", of.goroutines))
	case of.goroutines == 1:
		work = s.work(fmt.Sprintf("%d clients, one name", of.clients))
	}
	b.contend(s, of, work, 1, 2*b.time)
}

// contend measures goroutines that contend for one name in turns of the given length.
func (b *bench) contend(s *system, of shape, work string, parts int, d time.Duration) {
	var turns []turn
	peers := b.waiting(s)
	for _, p := range peers {
		lockers, end := openShape(p, b.addr(s), of)
		defer end()
		turns = append(turns, contention(p.name, p.foreign(), lockers, p.name+":hot:"+of.String(), d))
	}
	b.measure(work, parts, turns)
	// Peers that poll are fast because they are unfair: while the others sleep, one client
	// continues as if it were alone. So clients are compared with those of peers that are woken.
	rivals := slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return p.poll > 0 })
	if of.clients == 1 || len(rivals) < 2 {
		rivals = peers
	}
	b.compare(work, peers, rivals)
}

func (b *bench) manyClients(s *system) {
	for _, n := range b.clients {
		b.oneName(s, shape{n, 1})
	}
}

// shapes measures goroutines on one name, distributed over clients in several ways: a store that is
// fast with one client, or with one goroutine in each client, can be slow with a mix of both.
func (b *bench) shapes() {
	s, work := redisServer, us+", one name, clients × goroutines"
	var turns []turn
	for _, clients := range []int{1, 2, 4, 16, 64} {
		if clients > b.goroutines {
			break
		}
		of := shape{clients, b.goroutines / clients}
		lockers, end := openShape(s.peer(us), b.addr(s), of)
		defer end()
		turns = append(turns, contention(of.String(), false, lockers, "shape:"+of.String(), 2*b.time))
	}
	b.measure(work, 1, turns)
	for _, t := range turns[2:] {
		b.ratio(work, t.who, turns[1].who, "")
	}
}

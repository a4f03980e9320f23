package main

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// config sets the size of each workload.
type config struct {
	rounds int
	time   time.Duration // of one turn
	who    []string      // peers to measure; nil for all

	goroutines int           // P1, P3
	clients    []int         // P4
	handoffs   int           // P5: per turn, for peers that wake waiters
	processes  int           // P6
	waiters    int           // P6: in each process
	window     time.Duration // P6
	leases     int           // P7
	hold       time.Duration // P7
	few, names int           // P12
	queues     []int         // P12
}

var defaults = config{
	rounds: 5, time: time.Second,
	goroutines: 64, clients: []int{16, 64}, handoffs: 200,
	processes: 10, waiters: 100, window: 20 * time.Second,
	leases: 100_000, hold: 45 * time.Second,
	few: 1000, names: 1_000_000, queues: []int{1, 10, 100, 1000},
}

const pairs = "pairs/s"

// A bench is one run of the benchmarks.
type bench struct {
	config
	t      testing.TB
	redis  *servers.Redis
	nodes  []*servers.Redis // of the quorum
	report Report
	log    func(format string, args ...any)
	id     string // of the target that is measured now
	addrs  map[*system]string
}

// workloads maps the ID of each target to its workload.
var workloads = []struct {
	id, what string
	run      func(*bench, context.Context) error
}{
	{"P1", "many goroutines, own names", func(b *bench, ctx context.Context) error {
		return b.ownNames(ctx, redisServer, b.goroutines, atLeast(0.75), atLeast(1.8))
	}},
	{"P2", "one goroutine", func(b *bench, ctx context.Context) error {
		return b.ownNames(ctx, redisServer, 1, atLeast(0.85), atLeast(1))
	}},
	{"P3", "many goroutines, one name, one client", func(b *bench, ctx context.Context) error {
		return b.oneName(ctx, redisServer, shape{1, b.goroutines}, rushTargets{best: atLeast(50), unfair: atMost(1.5)})
	}},
	{"P4", "many clients, one name", func(b *bench, ctx context.Context) error {
		for _, n := range b.clients {
			if err := b.oneName(ctx, redisServer, shape{n, 1}, rushTargets{best: atLeast(3), wait: atMost(3), idlest: atLeast(1)}); err != nil {
				return err
			}
		}
		return nil
	}},
	{"P4shapes", "clients × goroutines, one name", shapesOf(redisServer, atLeast(0.7))},
	{"P5", "hand-off between processes", func(b *bench, ctx context.Context) error { return b.handOff(ctx, redisServer) }},
	{"P6", "what waiting costs the server", (*bench).waitersCost},
	{"P7", "many leases held", (*bench).manyHeld},
	{"P8", "quorum of five servers", (*bench).quorum},
	{"P8minute", "quorum of five servers, 50 clients on one name for a minute", (*bench).quorumMinute},
	{"P9etcd", "etcd: own names, a hot name, hand-off", func(b *bench, ctx context.Context) error { return b.sharedStore(ctx, etcdServer) }},
	{"P9etcdshapes", "etcd: clients × goroutines, one name", shapesOf(etcdServer, atLeast(0.7))},
	{"P9zk", "ZooKeeper: own names, a hot name, hand-off", func(b *bench, ctx context.Context) error { return b.sharedStore(ctx, zooKeeper) }},
	{"P9zkshapes", "ZooKeeper: clients × goroutines, one name", shapesOf(zooKeeper, nil)},
	{"P10", "SQLite, own names", func(b *bench, ctx context.Context) error { return b.database(ctx, sqliteFile) }},
	{"P10mysql", "MariaDB, own names, hand-off", func(b *bench, ctx context.Context) error {
		if err := b.database(ctx, mariaDB); err != nil {
			return err
		}
		return b.database(ctx, mariaDBWithoutFlushes)
	}},
	{"P10mysqlshapes", "MariaDB: clients × goroutines, one name", shapesOf(mariaDB, nil)},
	{"P10pg", "PostgreSQL, own names, hand-off", func(b *bench, ctx context.Context) error { return b.database(ctx, postgres) }},
	{"P10pgshapes", "PostgreSQL: clients × goroutines, one name", shapesOf(postgres, atLeast(0.7))},
	{"P11", "memory: what the core costs", (*bench).memory},
	{"P12", "many names, many waiters", (*bench).growth},
}

func shapesOf(s *system, part *target) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error { return b.shapes(ctx, s, part) }
}

func newBench(t testing.TB, c config) (*bench, error) {
	b := &bench{config: c, t: t, redis: servers.StartRedis(t, redisOptions), log: t.Logf, report: newReport(c), addrs: make(map[*system]string)}
	info, err := b.redis.Info("server")
	if err != nil {
		return nil, err
	}
	b.report.Versions["Redis"] = info["redis_version"]
	return b, nil
}

func (b *bench) run(ctx context.Context, pattern *regexp.Regexp) error {
	for _, w := range workloads {
		if !pattern.MatchString(w.id) {
			continue
		}
		b.log("%s: %s", w.id, w.what)
		b.id = w.id
		if err := w.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", w.id, err)
		}
	}
	return nil
}

// A turn is the part of a round that measures one candidate.
type turn[T any] struct {
	name    string
	take    func() (T, error)
	mayFail bool // true for peers
}

// interleave measures the candidates in turns, so that a cold or busy machine affects all of them
// equally. The first turn of each is a warm-up and is not counted. A peer that fails or hangs is
// reported and gets no further turns. A failure of Holdfast ends the run.
func interleave[T any](ctx context.Context, b *bench, turns []turn[T]) (found map[string][]T, err error) {
	found = make(map[string][]T)
	out := make(map[string]bool)
	for round := range b.rounds + 1 {
		for _, t := range turns {
			if out[t.name] {
				continue
			}
			result, err := t.take()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				if !t.mayFail {
					return nil, fmt.Errorf("%s: %w", t.name, err)
				}
				b.log("%s in round %d: %v: it gets no further turns", t.name, round, err)
				out[t.name] = true
				continue
			}
			if round > 0 {
				found[t.name] = append(found[t.name], result)
			}
		}
	}
	return found, nil
}

// column returns one figure of each round.
func column[T any](results []T, of func(T) float64) []float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = of(r)
	}
	return values
}

// ratios divides round by round, so that a slow moment of the machine affects both sides.
func ratios(a, b []float64) []float64 {
	values := make([]float64, 0, len(a))
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			values = append(values, a[i]/b[i])
		}
	}
	return values
}

// compare adds a row for each peer, and the ratios of Holdfast to the plain commands and to the best
// of its rivals. With a nil target only the ratio is reported.
func (b *bench) compare(work string, peers, rivals []peer, rates map[string][]float64, againstRaw, againstBest *target) {
	for _, p := range peers {
		b.add(work, p.name, pairs, rates[p.name], nil)
	}
	for _, p := range peers {
		if p.limit {
			b.add(work, us+" / "+p.name, "×", ratios(rates[us], rates[p.name]), againstRaw)
			againstRaw = nil // it is for the first of them
		}
	}
	best := ""
	for _, p := range rivals {
		if p.foreign() && (best == "" || median(rates[p.name]) > median(rates[best])) {
			best = p.name
		}
	}
	if best != "" {
		b.add(work, us+" / "+best+" (best peer)", "×", ratios(rates[us], rates[best]), againstBest)
	}
}

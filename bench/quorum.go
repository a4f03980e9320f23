package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// Work and rows of the measurement with a server that hangs, as the pages show them.
const (
	workHung       = "one node hung"
	workSlow       = "one node 20 ms slower"
	workBack       = "one node hung for 3 s and back"
	suffixHung     = ": one hung / healthy"
	suffixHungLock = ": one Lock, one hung"
)

// redisQuorum are five servers, three of which must agree. Its address is a list. Holdfast has its
// defaults, except that servers that have just started vote at once.
var redisQuorum = &system{
	name: "quorum of 5",
	start: func(b *bench) string {
		b.nodes = servers.StartRedisNodes(b.t, 5, redisOptions)
		var addrs []string
		for _, n := range b.nodes {
			addrs = append(addrs, n.Addr())
		}
		return strings.Join(addrs, ",")
	},
	peers: []peer{
		ours(func(addrs string) string { return "quorum+redis://" + addrs + "?restart=off" }),
		{name: "redsync", open: openRedsync, poll: redsyncRetry},
	},
}

// quorum measures P8.
func (b *bench) quorum(ctx context.Context) error {
	for _, goroutines := range []int{1, b.goroutines} {
		if err := b.ownNames(ctx, redisQuorum, goroutines, nil, atLeast(1.5)); err != nil {
			return err
		}
	}
	for _, of := range []shape{{1, b.goroutines}, {4, b.goroutines / 4}, {b.goroutines, 1}} {
		if err := b.oneName(ctx, redisQuorum, of, rushTargets{best: atLeast(1.5)}); err != nil {
			return err
		}
	}
	if err := b.quorumSlow(); err != nil {
		return err
	}
	return b.quorumHung(ctx)
}

// quorumSlow measures while one server is slower than the others by 20 ms, and after one was hung for
// three seconds. Each round has another name, so that the slow server is the bell of some of them.
func (b *bench) quorumSlow() error {
	nodes := b.nodes
	const slower, hangs = 20 * time.Millisecond, 3 * time.Second
	proxy := faultproxy.Start(b.t, nodes[len(nodes)-1].Addr())
	addrs := proxy.Addr()
	for _, n := range nodes[:len(nodes)-1] {
		addrs += "," + n.Addr()
	}
	lockers, end, err := shape{4, 1}.open(redisQuorum.us(), addrs)
	if err != nil {
		return err
	}
	defer end()
	var pairs, hot, back [2][]float64 // healthy, and not
	for round := range 2 * b.rounds {
		for i, delay := range []time.Duration{0, slower} {
			proxy.ToServer.Delay(delay)
			p50, err := pairQuantile(lockers[0], fmt.Sprintf("slow:%d:%d", round, i), b.time, 0.5)
			if err != nil {
				return err
			}
			r, err := rushFor(lockers, fmt.Sprintf("slow:%d", round), b.time)
			if err != nil {
				return err
			}
			pairs[i], hot[i] = append(pairs[i], p50.Seconds()*1000), append(hot[i], r.rate)
		}
		proxy.ToServer.Delay(0)
	}
	for round := range b.rounds {
		name := fmt.Sprintf("back:%d", round)
		for i := range 2 {
			r, err := rushFor(lockers, name, b.time)
			if err != nil {
				return err
			}
			if back[i] = append(back[i], r.rate); i > 0 {
				break
			}
			nodes[round%len(nodes)].Stop()
			_, err = rushFor(lockers, name, hangs)
			nodes[round%len(nodes)].Continue()
			if err != nil {
				return err
			}
			time.Sleep(2 * time.Second)
		}
	}
	b.add(redisQuorum.work(workSlow), us+": p50 of a pair, slow / healthy", "×", ratios(pairs[1], pairs[0]), atMost(1.5))
	b.add(redisQuorum.work(workSlow), us+": one name, 4 clients, healthy", "pairs/s", hot[0], nil)
	b.add(redisQuorum.work(workSlow), us+": one name, 4 clients, slow / healthy", "×", ratios(hot[1], hot[0]), atLeast(1/1.5))
	b.add(redisQuorum.work(workBack), us+": one name, 4 clients, 2 s after / before", "×", ratios(back[1], back[0]), nil)
	return nil
}

// quorumMinute lets 50 clients contend for one name for long enough to see whether one starves.
func (b *bench) quorumMinute(context.Context) error {
	of, d := shape{50, 1}, 6*b.window
	peers := b.waiting(redisQuorum)
	found := make(map[string][]rush)
	for _, p := range peers {
		lockers, end, err := of.open(p, b.addr(redisQuorum))
		if err != nil {
			return err
		}
		r, err := rushFor(lockers, p.name+":minute", d)
		end()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		found[p.name] = []rush{r}
	}
	b.addRush(redisQuorum.work("one name, 50 clients for %v", d), peers, of, found, rushTargets{})
	return nil
}

// quorumHung measures while one server is stopped: it keeps its connections and answers nothing.
func (b *bench) quorumHung(ctx context.Context) error {
	ours, err := redisQuorum.us().open(b.addr(redisQuorum))
	if err != nil {
		return err
	}
	defer ours.close()
	var healthy, hung []float64
	for round := range b.rounds {
		h, err := pairQuantile(ours, fmt.Sprintf("healthy:%d", round), b.time, 0.99)
		if err != nil {
			return err
		}
		node := b.nodes[round%len(b.nodes)]
		node.Stop()
		x, err := pairQuantile(ours, fmt.Sprintf("hung:%d", round), b.time, 0.99)
		node.Continue()
		if err != nil {
			return err
		}
		healthy, hung = append(healthy, h.Seconds()*1000), append(hung, x.Seconds()*1000)
	}
	work := redisQuorum.work(workHung)
	b.add(work, us+": p99 of a pair, all healthy", "ms", healthy, nil)
	b.add(work, us+": p99 of a pair, one hung", "ms", hung, nil)
	b.add(work, us+suffixHung, "×", ratios(hung, healthy), atMost(2))
	for _, p := range slices.DeleteFunc(b.waiting(redisQuorum), func(p peer) bool { return p.name == us }) {
		l, err := p.open(b.addr(redisQuorum))
		if err != nil {
			return err
		}
		defer l.close()
		b.nodes[0].Stop()
		begin := time.Now()
		held, err := l.lock(ctx, "hung")
		took := time.Since(begin)
		if err == nil {
			held.Unlock(ctx)
		}
		b.nodes[0].Continue()
		b.add(work, p.name+suffixHungLock, "ms", []float64{took.Seconds() * 1000}, nil)
	}
	return nil
}

// pairQuantile returns a quantile of the time of a pair of Lock and Unlock. The pairs run one after
// the other, each on a new name.
func pairQuantile(l *locker, prefix string, d time.Duration, q float64) (time.Duration, error) {
	var times histogram
	for begin, n := time.Now(), 0; time.Since(begin) < d; n++ {
		start := time.Now()
		h, err := l.lock(context.Background(), fmt.Sprintf("%s:%d", prefix, n))
		if err == nil {
			err = h.Unlock(context.Background())
		}
		if err != nil {
			return 0, err
		}
		times.note(time.Since(start))
	}
	return times.quantile(q), nil
}

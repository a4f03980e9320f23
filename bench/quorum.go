package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// quorumNodes is the size of the quorum of P8.
const quorumNodes = 5

// Work and rows of the measurement with a server that hangs, as the pages show them.
const (
	workHung       = "quorum of 5, one node hung"
	workSlow       = "quorum of 5, one node 20 ms slower"
	workBack       = "quorum of 5, one node hung for 3 s and back"
	suffixHung     = ": one hung / healthy"
	suffixHungLock = ": one Lock, one hung"
)

// quorumPeers lock on a majority of independent servers. Their address is a list.
var quorumPeers = []peer{
	{name: us, open: openHoldfastQuorum},
	{name: "redsync", open: openRedsyncQuorum, poll: redsyncRetry},
}

// openHoldfastQuorum opens a quorum with its defaults, except that servers that have just started
// vote at once.
func openHoldfastQuorum(addrs string) (locker, error) {
	c, err := holdfast.Open(context.Background(), "quorum+redis://"+addrs+"?restart=off")
	if err != nil {
		return nil, err
	}
	return holdfastLocker{c}, nil
}

type redsyncQuorum struct {
	redsyncLocker
	conns []*redis.Client
}

func openRedsyncQuorum(addrs string) (locker, error) {
	l := &redsyncQuorum{}
	var pools []redsyncredis.Pool
	for _, addr := range strings.Split(addrs, ",") {
		conn := redis.NewClient(&redis.Options{Addr: addr})
		l.conns = append(l.conns, conn)
		pools = append(pools, goredis.NewPool(conn))
	}
	l.sync = redsync.New(pools...)
	return l, nil
}

func (l *redsyncQuorum) Close() error {
	for _, conn := range l.conns {
		conn.Close()
	}
	return nil
}

// startQuorum starts the servers of a quorum.
func (b *bench) startQuorum() (nodes []*servers.Redis, addrs string, stop func()) {
	nodes = servers.StartRedisNodes(b.t, quorumNodes, servers.RedisOptions{InMemory: true, Config: []string{"maxclients 20000"}})
	var all []string
	for _, n := range nodes {
		all = append(all, n.Addr())
	}
	return nodes, strings.Join(all, ","), func() {
		for _, n := range nodes {
			n.Kill()
		}
	}
}

// quorum measures P8: a quorum of five servers, three of which must agree.
func (b *bench) quorum(ctx context.Context) error {
	nodes, all, stop := b.startQuorum()
	defer stop()
	for _, goroutines := range []int{1, b.goroutines} {
		if err := b.quorumOwnNames(ctx, all, goroutines); err != nil {
			return err
		}
	}
	for _, s := range []shape{{1, b.goroutines}, {4, b.goroutines / 4}, {b.goroutines, 1}} {
		if err := b.quorumOneName(ctx, all, s); err != nil {
			return err
		}
	}
	if err := b.quorumSlow(nodes); err != nil {
		return err
	}
	return b.quorumHung(ctx, all, nodes)
}

// quorumSlow measures while one server is slower than the others by 20 ms, and after one was hung for
// three seconds. Each round has another name, so that the slow server is the bell of some of them.
func (b *bench) quorumSlow(nodes []*servers.Redis) error {
	const slower, hangs = 20 * time.Millisecond, 3 * time.Second
	proxy := faultproxy.Start(b.t, nodes[len(nodes)-1].Addr())
	addrs := proxy.Addr()
	for _, n := range nodes[:len(nodes)-1] {
		addrs += "," + n.Addr()
	}
	lockers, end, err := openShape(quorumPeers[0], addrs, shape{4, 1})
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
	b.add(workSlow, us+": p50 of a pair, slow / healthy", "×", ratios(pairs[1], pairs[0]), atMost(1.5))
	b.add(workSlow, us+": one name, 4 clients, healthy", "pairs/s", hot[0], nil)
	b.add(workSlow, us+": one name, 4 clients, slow / healthy", "×", ratios(hot[1], hot[0]), atLeast(1/1.5))
	b.add(workBack, us+": one name, 4 clients, 2 s after / before", "×", ratios(back[1], back[0]), nil)
	return nil
}

func (b *bench) quorumOwnNames(ctx context.Context, addrs string, goroutines int) error {
	peers := b.wanted(quorumPeers)
	var turns []turn[float64]
	for _, p := range peers {
		l, err := p.open(addrs)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer l.Close()
		turns = append(turns, turn[float64]{p.name, func() (float64, error) {
			return pairRate(l, p.name+":own", goroutines, b.time)
		}, p.foreign()})
	}
	rates, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	b.compare(fmt.Sprintf("quorum of %d, %s", quorumNodes, ownNamesOf(goroutines)), peers, rates, nil, atLeast(1.5))
	return nil
}

// quorumOneName measures goroutines that contend for one name, distributed over clients.
func (b *bench) quorumOneName(ctx context.Context, addrs string, s shape) error {
	peers := b.wanted(quorumPeers)
	var turns []turn[rush]
	for _, p := range peers {
		lockers, end, err := openShape(p, addrs, s)
		if err != nil {
			return err
		}
		defer end()
		turns = append(turns, turn[rush]{p.name, func() (rush, error) {
			return rushFor(lockers, p.name+":hot:"+s.String(), 2*b.time)
		}, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	b.addRush(fmt.Sprintf("quorum of %d, one name, %s clients × goroutines", quorumNodes, s), peers, found, atLeast(1.5))
	return nil
}

// openShape opens the clients of a shape, and returns one for each goroutine.
func openShape(p peer, addrs string, s shape) (lockers []locker, end func(), err error) {
	var opened []locker
	end = func() {
		for _, l := range opened {
			l.Close()
		}
	}
	for range s.clients {
		l, err := p.open(addrs)
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("%s: %w", p.name, err)
		}
		opened = append(opened, l)
		lockers = append(lockers, slices.Repeat([]locker{l}, s.goroutines)...)
	}
	return lockers, end, nil
}

// addRush adds throughput, waits and fairness of clients that contend for one name.
func (b *bench) addRush(work string, peers []peer, found map[string][]rush, against *target) {
	b.compare(work, peers, ratesOf(found), nil, against)
	b.waits(work, peers, found)
	for _, p := range peers {
		b.add(work, p.name+": busiest / idlest", "×", column(found[p.name], rush.unfair), nil)
		b.add(work, p.name+": pairs of the idlest", "pairs", column(found[p.name], func(r rush) float64 { return float64(r.least) }), nil)
	}
}

// quorumMinute lets 50 clients contend for one name for long enough to see whether one starves.
func (b *bench) quorumMinute(context.Context) error {
	_, addrs, stop := b.startQuorum()
	defer stop()
	peers := b.wanted(quorumPeers)
	found := make(map[string][]rush)
	for _, p := range peers {
		lockers, end, err := openShape(p, addrs, shape{50, 1})
		if err != nil {
			return err
		}
		r, err := rushFor(lockers, p.name+":minute", 6*b.window)
		end()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		found[p.name] = []rush{r}
	}
	b.addRush(fmt.Sprintf("quorum of %d, one name, 50 clients for %v", quorumNodes, 6*b.window), peers, found, nil)
	return nil
}

// quorumHung measures while one server is stopped: it keeps its connections and answers nothing.
func (b *bench) quorumHung(ctx context.Context, addrs string, nodes []*servers.Redis) error {
	peers := b.wanted(quorumPeers)
	lockers := make(map[string]locker)
	for _, p := range peers {
		l, err := p.open(addrs)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer l.Close()
		lockers[p.name] = l
	}
	var healthy, hung []float64
	for round := range b.rounds {
		h, err := pairP99(lockers[us], fmt.Sprintf("healthy:%d", round), b.time)
		if err != nil {
			return err
		}
		nodes[round%len(nodes)].Stop()
		x, err := pairP99(lockers[us], fmt.Sprintf("hung:%d", round), b.time)
		nodes[round%len(nodes)].Continue()
		if err != nil {
			return err
		}
		healthy, hung = append(healthy, h.Seconds()*1000), append(hung, x.Seconds()*1000)
	}
	b.add(workHung, us+": p99 of a pair, all healthy", "ms", healthy, nil)
	b.add(workHung, us+": p99 of a pair, one hung", "ms", hung, nil)
	b.add(workHung, us+suffixHung, "×", ratios(hung, healthy), atMost(2))
	if l := lockers["redsync"]; l != nil {
		nodes[0].Stop()
		begin := time.Now()
		held, err := l.Lock(ctx, "hung")
		took := time.Since(begin)
		if err == nil {
			held.Unlock(ctx)
		}
		nodes[0].Continue()
		b.add(workHung, "redsync"+suffixHungLock, "ms", []float64{took.Seconds() * 1000}, nil)
	}
	return nil
}

// pairP99 returns the p99 of a pair.
func pairP99(l locker, prefix string, d time.Duration) (time.Duration, error) {
	return pairQuantile(l, prefix, d, 0.99)
}

// pairQuantile returns a quantile of the time of a pair of Lock and Unlock. The pairs run one after
// the other, each on a new name.
func pairQuantile(l locker, prefix string, d time.Duration, q float64) (time.Duration, error) {
	var times histogram
	for begin, n := time.Now(), 0; time.Since(begin) < d; n++ {
		start := time.Now()
		h, err := l.Lock(context.Background(), fmt.Sprintf("%s:%d", prefix, n))
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

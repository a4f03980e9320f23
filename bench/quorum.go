package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

// redisQuorum are five servers. Holdfast has its defaults, but servers that have just started vote at once.
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
		ours("quorum+redis://%s?restart=off"),
		{name: "redsync", open: openRedsync, poll: redsyncRetry},
	},
}

func (b *bench) quorum() {
	b.ownNames(redisQuorum, 1)
	b.ownNames(redisQuorum, b.goroutines)
	for _, clients := range []int{1, 4, b.goroutines} {
		b.oneName(redisQuorum, shape{clients, b.goroutines / clients})
	}
	b.quorumSlow()
	b.quorumBack()
	b.quorumHung()
}

// quorumSlow slows one server by 20 ms. Each round has another name, so that it is the bell of some of them.
func (b *bench) quorumSlow() {
	proxy := faultproxy.Start(b.t, b.nodes[4].Addr())
	others := strings.TrimSuffix(b.addr(redisQuorum), ","+b.nodes[4].Addr())
	lockers, end := openShape(redisQuorum.peer(us), proxy.Addr()+","+others, shape{4, 1})
	defer end()
	var turns []turn
	round := 0
	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		turns = append(turns, turn{who: fmt.Sprintf("%s, %v slower", us, delay), take: func() []figure {
			proxy.ToServer.Delay(delay)
			defer proxy.ToServer.Delay(0)
			round++
			times := pairTimes(lockers[0], fmt.Sprintf("slow:%d", round), b.time)
			r := must.Get(contend(lockers, fmt.Sprintf("slow:%d", round/2), b.time))
			return []figure{{"p50 of a pair", "ms", median(times)}, {"one name, 4 clients", pairs, r.rate()}}
		}})
	}
	work := redisQuorum.work("one node 20 ms slower")
	b.measure(work, 2, turns)
	for _, name := range []string{": p50 of a pair", ": one name, 4 clients"} {
		b.ratio(work, turns[1].who+name, turns[0].who+name, "")
	}
}

// quorumBack measures before and after one server was hung for three seconds.
func (b *bench) quorumBack() {
	lockers, end := openShape(redisQuorum.peer(us), b.addr(redisQuorum), shape{4, 1})
	defer end()
	round := 0
	work := redisQuorum.work("one node hung for 3 s and back")
	b.measure(work, 1, []turn{{who: us, take: func() []figure {
		name, node := fmt.Sprintf("back:%d", round), b.nodes[round%len(b.nodes)]
		round++
		before := must.Get(contend(lockers, name, b.time))
		node.Stop()
		_, err := contend(lockers, name, 3*time.Second)
		node.Continue()
		must.OK(err)
		time.Sleep(2 * time.Second)
		after := must.Get(contend(lockers, name, b.time))
		return []figure{{"one name, 4 clients, 2 s after / before", "×", after.rate() / max(1, before.rate())}}
	}}})
}

// quorumHung measures while one server is stopped: it keeps its connections and answers nothing.
func (b *bench) quorumHung() {
	ours := b.open(redisQuorum, redisQuorum.peer(us))
	defer ours.close()
	work := redisQuorum.work("one node hung")
	const healthy, hung = us + ": p99 of a pair, all healthy", us + ": p99 of a pair, one hung"
	var turns []turn
	round := 0
	for _, who := range []string{healthy, hung} {
		turns = append(turns, turn{who: who, take: func() []figure {
			round++
			if node := b.nodes[round%len(b.nodes)]; who == hung {
				node.Stop()
				defer node.Continue()
			}
			times := pairTimes(ours, fmt.Sprintf("hung:%d", round), b.time)
			return []figure{{"", "ms", quantile(times, 0.99)}}
		}})
	}
	b.measure(work, 1, turns)
	b.ratio(work, hung, healthy, "")
	for _, p := range b.waiting(redisQuorum) {
		l := b.open(redisQuorum, p)
		defer l.close()
		b.measure(work, once, []turn{{p.name, func() []figure {
			b.nodes[0].Stop()
			defer b.nodes[0].Continue()
			begin := time.Now()
			h := must.Get(l.lock(b.ctx, "hung"))
			took := time.Since(begin)
			must.OK(h.Unlock(b.ctx))
			return []figure{{"one Lock, one hung", "ms", took.Seconds() * 1000}}
		}, p.foreign()}})
	}
}

// quorumMinute lets 50 clients contend for one name for long enough to see whether one starves.
func (b *bench) quorumMinute() {
	d := 6 * b.window
	b.contend(redisQuorum, shape{50, 1}, redisQuorum.work(fmt.Sprintf("one name, 50 clients for %v", d)), once, d)
}

// pairTimes returns the times of pairs in ms. They run one after the other, each on a new name.
func pairTimes(l *locker, prefix string, d time.Duration) (times []float64) {
	for begin, n := time.Now(), 0; time.Since(begin) < d; n++ {
		start := time.Now()
		h := must.Get(l.lock(context.Background(), fmt.Sprintf("%s:%d", prefix, n)))
		must.OK(h.Unlock(context.Background()))
		times = append(times, time.Since(start).Seconds()*1000)
	}
	return times
}

package redisstore

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// rates makes tests compare times and rates, which needs a quiet machine.
var rates = flag.Bool("rates", false, "compare times and rates, on a quiet machine")

// proxiedQuorum starts five servers behind proxies, and two clients.
func proxiedQuorum(t *testing.T) ([]*faultproxy.Proxy, []*holdfast.Client) {
	t.Helper()
	var proxies []*faultproxy.Proxy
	var hosts []string
	for _, n := range servers.StartRedisNodes(t, 5, servers.RedisOptions{InMemory: true}) {
		p := faultproxy.Start(t, n.Addr())
		proxies = append(proxies, p)
		hosts = append(hosts, p.Addr())
	}
	var clients []*holdfast.Client
	for range 2 {
		c, err := holdfast.Open(t.Context(), "quorum+redis://"+strings.Join(hosts, ",")+"?restart=off")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		clients = append(clients, c)
	}
	return proxies, clients
}

// grants returns how many grants per second clients get that contend for one name.
func grants(t *testing.T, clients []*holdfast.Client, name string, d time.Duration) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var n atomic.Int64
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Lock(ctx, name)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Lock: %v", err)
					}
					continue
				}
				n.Add(1)
				l.Unlock(context.Background())
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / d.Seconds()
}

// Each of five nodes in turn is slower than the others by 20 ms. It is not needed for a majority. If it is
// the bell of the contended name, a hand-over takes a round trip to it.
func TestQuorumDoesNotWaitForOneSlowNode(t *testing.T) {
	proxies, clients := proxiedQuorum(t)
	late, count, window := 0, 10, 200*time.Millisecond
	if *rates {
		count, window = 100, 2*time.Second
	}
	for slow, p := range proxies {
		p.ToClient.Delay(20 * time.Millisecond)
		var pairs []time.Duration
		for i := range count {
			begin := time.Now()
			l, err := clients[0].Lock(t.Context(), fmt.Sprint("free", slow, "-", i%10))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			pairs = append(pairs, time.Since(begin))
		}
		slices.Sort(pairs)
		rate := grants(t, clients, "contended", window)
		t.Logf("node %d is slow: p50 of a pair %v, %.0f grants/s", slow, pairs[count/2], rate)
		if *rates && pairs[count/2] > 15*time.Millisecond {
			t.Errorf("node %d is slow: p50 of a pair is %v", slow, pairs[count/2])
		}
		if rate < 50 {
			late++
		}
		if rate == 0 || *rates && (rate < 10 || late > 1) {
			t.Errorf("node %d is slow: %.0f grants/s", slow, rate)
		}
		p.Heal()
	}
}

// A node hangs for 3 s. It is the bell of some of the names. The clients go on meanwhile, and are fast again
// soon after.
func TestQuorumGoesOnWhileANodeHangs(t *testing.T) {
	proxies, clients := proxiedQuorum(t)
	measure := func(d time.Duration) (least, sum float64) {
		var each [7]float64 // every node is the bell of one
		var all sync.WaitGroup
		for i := range each {
			all.Go(func() { each[i] = grants(t, clients, fmt.Sprint(i), d) })
		}
		all.Wait()
		for _, rate := range each {
			sum += rate
		}
		return slices.Min(each[:]), sum
	}
	second := 200 * time.Millisecond
	if *rates {
		second = time.Second
	}
	measure(second)
	_, before := measure(second)
	proxies[0].Hold()
	measure(second)
	during, sum := measure(2 * time.Second) // a name whose bell hangs may be granted only once a second
	proxies[0].Heal()
	measure(2 * second)
	least, after := measure(2 * time.Second)
	t.Logf("%.0f grants/s; %.0f while a node hangs, %.0f for the slowest name; then %.0f and %.0f", before, sum, during, after, least)
	if during == 0 || *rates && during < 2 {
		t.Errorf("%.1f grants/s of the slowest name while a node hangs", during)
	}
	if after == 0 || *rates && after < before/2 {
		t.Errorf("%.0f grants/s before, %.0f when the node is back", before, after)
	}
}

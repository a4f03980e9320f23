package faults

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

var patient = holdfast.Retry(holdfast.Every(50 * time.Millisecond))

// A divided ensemble is one whose servers reach each other through proxies.
type divided struct {
	*servers.ZooKeeperEnsemble
	ways map[[2]int]wires // the proxies from one server to another, by index
}

func startDivided(t testing.TB) *divided {
	t.Helper()
	d := &divided{ways: make(map[[2]int]wires)}
	opts := quietZoo
	opts.Route = func(from, to int, addr string) string {
		p := faultproxy.Start(t, addr)
		p.Patient() // otherwise a follower whose connection is reset before its leader listens would wait for ten seconds
		way := [2]int{from, to}
		d.ways[way] = append(d.ways[way], p)
		return p.Addr()
	}
	d.ZooKeeperEnsemble = servers.StartZooKeeperEnsemble(t, 3, opts)
	return d
}

// around returns all proxies between a server and the others.
func (d *divided) around(z *servers.ZooKeeper) (w wires) {
	for way, proxies := range d.ways {
		if d.Nodes[way[0]] == z || d.Nodes[way[1]] == z {
			w = append(w, proxies...)
		}
	}
	return w
}

// kill kills a server, and makes its proxies refuse connections. Otherwise the proxies would wait
// for the server.
func (d *divided) kill(z *servers.ZooKeeper) {
	z.Kill()
	d.around(z).cut()
}

// revive starts servers again.
func (d *divided) revive(nodes ...*servers.ZooKeeper) {
	for _, z := range nodes {
		d.around(z).heal()
	}
	d.Restart(nodes...)
}

// serve waits until all servers serve.
func (d *divided) serve(t testing.TB) {
	t.Helper()
	for _, z := range d.Nodes {
		eventually(t, "all servers serve", func() error {
			_, err := z.Mode()
			return err
		})
	}
}

// All tests of server faults share one ensemble, because starting it takes long. They run one
// after the other, and each leaves all servers running.
func TestZooKeeperWhoseServersFail(t *testing.T) {
	t.Parallel()
	d := startDivided(t)
	for _, test := range []struct {
		name    string
		session time.Duration
		run     func(t *testing.T, d *divided, b *bed)
	}{
		{"the leader is killed", longSession, leaderKilled},
		{"all are restarted with their data", longSession, func(t *testing.T, d *divided, b *bed) {
			// Sessions survive, because a new leader counts their time from its own start.
			survivesRestart(t, b, func() { d.Restart(d.Nodes...) })
		}},
		{"all hang beyond the TTL", zooSession, func(t *testing.T, d *divided, b *bed) { endsOnHung(t, b, d.Nodes) }},
		{"one hangs and another is used", zooSession, oneHangs},
		{"a quorum is lost and nothing is granted", zooSession, func(t *testing.T, d *divided, b *bed) {
			endsWithout(t, b, func() { d.kill(d.Nodes[0]); d.kill(d.Nodes[1]) }, func() { d.revive(d.Nodes[:2]...) })
		}},
		{"a minority is cut off and grants nothing", zooSession, minorityCutOff},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, d, zooBed(t, d.ZooKeeperEnsemble, test.session)) }) {
			break // the servers may be in any state
		}
		d.serve(t)
	}
}

func leaderKilled(t *testing.T, d *divided, b *bed) {
	h, resource := new(History), new(counter)
	client := b.open()
	holder := record(h).must(t, client, "held", longTTL)
	over := holder.watch()
	stop := b.busy(h, resource, 4, b.open)
	for range 2 {
		leader := d.Leader()
		d.kill(leader)
		d.Leader() // waits for the next leader
		check(t, retry(func() error { return holder.Renew(t.Context()) }))
		d.revive(leader)
		progress(t, resource, "work goes on with the next leader")
	}
	holder.mustLive(t, over)
	holder.mustUnlock(t)
	b.close(client)
	stop()
}

func oneHangs(t *testing.T, d *divided, b *bed) {
	h := new(History)
	client, w := b.openBy()
	held := record(h).must(t, client, "held", longTTL)
	over := held.watch()
	used := slices.IndexFunc(w, func(p *faultproxy.Proxy) bool { return p.Open() > 0 })
	d.Nodes[used].Stop()
	// Check L. The client needs time to reconnect, and an election takes time if the leader
	// hangs.
	next := record(h).later(t, t.Context(), client, "n", longTTL, patient).get(soon)
	check(t, retry(func() error { return held.Renew(t.Context()) }))
	d.Nodes[used].Continue()
	held.mustLive(t, over)
	held.mustUnlock(t)
	next.mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client)
}

func minorityCutOff(t *testing.T, d *divided, b *bed) {
	h := new(History)
	leader := d.Leader()
	var majority []string
	for _, z := range d.Nodes {
		if z != leader {
			majority = append(majority, z.Addr())
		}
	}
	inside := openURL(t, b.zoo.url(leader.Addr()))
	outside := openURL(t, b.zoo.url(majority...))
	lease := record(h).must(t, inside, "n", shortTTL)
	over := lease.watch()
	waiting := record(h).later(t, t.Context(), outside, "n", shortTTL, patient)
	b.queued(outside, "n", 1)
	eventually(t, "the lease is renewed", renewed(lease))

	// At first the leader does not know that it has lost its followers.
	d.around(leader).hold()
	if mode, err := leader.Mode(); mode != "leader" {
		t.Errorf("it is %q already: %v", mode, err)
	}
	eventually(t, "the leader gives up", func() error {
		denied(t, inside)
		if mode, err := leader.Mode(); err == nil {
			return fmt.Errorf("it is %s", mode)
		}
		return nil
	})
	d.around(leader).cut() // so that the others do not wait for it
	next := waiting.get(limit)
	next.watch()
	ends(t, "the lease on the wrong side", over)
	denied(t, inside)
	if mode, err := leader.Mode(); err == nil {
		t.Errorf("the one that was cut off is %s again", mode)
	}
	eventually(t, "the next lease is renewed", renewed(next))
	d.around(leader).heal()
	next.mustUnlock(t)
	record(h).must(t, inside, "n", shortTTL, patient).mustUnlock(t)
	check(t, h.Check())
	b.clean(zooSession+soon, inside, outside)
}

// An idle client does not know that its server hangs. Requests whose callers have given up must be cleaned
// up, which is not possible on a hung server. Neither may keep the client from leaving that server.
func TestZooKeeperAnIdleClientLeavesAHungServer(t *testing.T) {
	t.Parallel()
	b := zooBed(t, sharedZoo(), longSession)
	const ttl = 10 * time.Second
	client, w := b.openBy()
	other := b.open()
	h := record(new(History))
	held, blocker := h.must(t, client, "held", ttl), h.must(t, other, "blocked", longTTL)
	over := held.watch()
	_, err := client.TryLock(t.Context(), "short", holdfast.TTL(2*time.Second), holdfast.NoRenew()) // expires during the hang
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := h.later(t, ctx, client, "blocked", longTTL)
	b.queued(other, "blocked", 1)
	w.each(func(p *faultproxy.Proxy) {
		if p.Open() > 0 {
			p.Hold()
		}
	})
	cancel()
	<-waiting.done
	begin := time.Now()
	lease := h.must(t, client, "n", longTTL)
	if took := time.Since(begin); took > 5*time.Second { // the default time limit of one call, after which a caller would give up
		t.Errorf("L: Lock took %v on a hung server, though another one answers", took)
	}
	lease.mustUnlock(t)
	time.Sleep(ttl + ttl/5) // nothing may happen in this time
	held.mustLive(t, over)
	held.mustUnlock(t)
	blocker.mustUnlock(t)
	w.heal()
	b.clean(longSession+soon, client, other)
}

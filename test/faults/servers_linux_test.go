package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A victim is a single server that a test may disturb.
type victim struct {
	process *servers.Process
	clock   *wallClock
	bed     func(t testing.TB) *bed // a part of the server for one test
	cutOff  func(b *bed)            // ends the connections of all clients
	wiped   func(b *bed)            // creates what clients need after a loss of the data; nil if a failover shows the same
}

var victims = map[string]func(t testing.TB) *victim{
	"Redis": func(t testing.TB) *victim {
		clock, opts := newClock(t)
		b := single(t, opts)
		return &victim{b.nodes[0].Process, clock, func(t testing.TB) *bed { return &bed{t: t, url: b.url, nodes: b.nodes} }, forgetScripts, func(*bed) {}}
	},
	"MariaDB": func(t testing.TB) *victim {
		clock, opts := newClock(t)
		m := servers.StartMariaDB(t, servers.MariaDBOptions{Env: opts.Env})
		return &victim{
			m.Process, clock, func(t testing.TB) *bed { return mysqlBed(t, m) }, func(b *bed) { b.mysql.killSessions() },
			func(b *bed) { b.mysql.create(b.t) },
		}
	},
	"PostgreSQL": func(t testing.TB) *victim {
		clock, opts := newClock(t)
		p := servers.StartPostgres(t, servers.PostgresOptions{Env: opts.Env})
		return &victim{p.Process, clock, func(t testing.TB) *bed { return postgresOn(t, p) }, func(b *bed) { b.pg.killSessions() }, nil}
	},
}

// The tests of a kind of server share one, because some take long to start. They run one after the
// other, and each leaves the server running with the right time.
func TestASingleServerThatFails(t *testing.T) {
	t.Parallel()
	for kind, start := range victims {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			v := start(t)
			tests := []struct {
				name string
				run  func(t *testing.T, b *bed)
			}{
				{"a restart keeps locks and tokens", func(t *testing.T, b *bed) { survivesRestart(t, b, v.process.Restart) }},
				{"a hung server grants nothing before the holder knows", func(t *testing.T, b *bed) {
					endsOnHung(t, b, []*servers.Process{v.process})
				}},
				{"connections are killed while they are used", func(t *testing.T, b *bed) {
					goesOnThrough(t, b, func(b *bed, _ wires) { v.cutOff(b) })
				}},
				{"data is lost, and tokens still grow", v.loseData},
				{"the clock jumps, and tokens still grow", v.setClock}, // the last one, because tokens may fall if data is lost after it
			}
			if v.wiped == nil {
				tests = append(tests[:3], tests[4])
			}
			for _, test := range tests {
				if !t.Run(test.name, func(t *testing.T) { test.run(t, v.bed(t)) }) {
					break // the server may be in any state
				}
			}
		})
	}
}

// Work continues while servers and connections fail. At the end, the resource has every update,
// in the order of tokens.
func TestWorkUnderALockGoesOnThroughFaults(t *testing.T) {
	t.Parallel()
	cut := func(_ *bed, w wires) {
		for range 10 {
			w[rand.IntN(len(w))].Cut()
			w.heal()
			time.Sleep(rand.N(200 * time.Millisecond))
		}
	}
	forget := func(b *bed, _ wires) { forgetScripts(b) }
	for name, test := range map[string]struct {
		start func(t testing.TB) *bed
		fault func(b *bed, w wires)
	}{
		"Sentinel, scripts are forgotten": {sentinel, forget},
		"quorum, scripts are forgotten":   {func(t testing.TB) *bed { return quorumBed(t, 3, servers.RedisOptions{}) }, forget},
		"etcd, connections are cut":       {etcd, cut},
		"ZooKeeper, connections are cut":  {zookeeper, cut},
	} {
		on(t, name, test.start, func(t *testing.T, b *bed) { goesOnThrough(t, b, test.fault) })
	}
}

// goesOnThrough causes a fault again and again while clients work under a lock.
func goesOnThrough(t *testing.T, b *bed, fault func(b *bed, w wires)) {
	t.Helper()
	h, resource := new(History), new(counter)
	var all wires // the proxies of all clients
	stop := b.busy(h, resource, 4, func(opts ...holdfast.Option) *holdfast.Client {
		c, w := b.openBy(opts...)
		all = append(all, w...)
		return c
	})
	for range 4 {
		fault(b, all)
		progress(t, resource, "work goes on after a fault")
	}
	stop()
}

// forgetScripts makes servers of Redis forget their scripts and end the connections of clients.
func forgetScripts(b *bed) {
	for _, node := range b.nodes {
		node.Do("SCRIPT", "FLUSH")
		killConnections(node)
	}
}

// setClock shows the weakness that a clock that is set ends leases early or late.
func (v *victim) setClock(t *testing.T, b *bed) {
	h, resource := new(History), new(counter)
	client, other := b.open(), b.open()
	_, next := grantedTwice(t, h, resource, client, wrong/2, func() *holdfast.Client { // half a minute early
		v.clock.shift(wrong)
		return other
	})
	next.mustUnlock(t)
	held := record(h).must(t, client, "held", longTTL)

	v.clock.shift(-wrong) // before the real time
	check(t, held.Renew(t.Context()))
	held.mustUnlock(t)
	late := b.open() // a client that has not seen the earlier time
	clients := []*holdfast.Client{late, other, late, late}
	for i, c := range clients {
		if i == len(clients)-1 {
			v.clock.shift(0)
		}
		again := record(h).must(t, c, "n", wrong/2)
		check(t, resource.add(again.Token()))
		again.mustUnlock(t)
	}
	check(t, h.CheckTokens())
	check(t, resource.check())
	b.clean(longTTL+soon, client, other, late)
}

// loseData shows the weakness that a server that has lost its data grants locks again.
func (v *victim) loseData(t *testing.T, b *bed) {
	h, resource := new(History), new(counter)
	client := b.open()
	var other *holdfast.Client
	old, next := grantedTwice(t, h, resource, client, longTTL, func() *holdfast.Client {
		v.process.Wipe()
		v.wiped(b)
		other = b.open()
		return other
	})
	check(t, h.CheckTokens())
	check(t, resource.check())
	next.mustUnlock(t)
	// There is nothing to release. Either the grant is gone, or an earlier attempt that failed has
	// released it.
	if err := old.Unlock(t.Context()); err != nil && !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the first holder's Unlock: %v", err)
	}
	b.clean(soon, client, other)
}

// killSessions ends the connections of clients.
func (m *mysqlServer) killSessions() {
	ids, _ := m.query(fmt.Sprintf("SELECT id FROM information_schema.processlist WHERE db = '%s'", m.database))
	for _, id := range ids {
		m.query("KILL " + id) // the connection may have ended by itself
	}
}

// killSessions ends the connections of clients.
func (p *pgBed) killSessions() { p.Terminate("application_name = '" + p.schema + "'") }

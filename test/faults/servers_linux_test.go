package faults

import (
	"errors"
	"fmt"
	"testing"

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
		r := servers.StartRedis(t, opts)
		return &victim{
			r.Process, clock, func(t testing.TB) *bed { return redisBed(t, viaRueidis, r) },
			func(*bed) { forgetScripts(r) }, func(*bed) {},
		}
	},
	"MariaDB": func(t testing.TB) *victim {
		clock, opts := newClock(t)
		m := servers.StartMariaDB(t, servers.MariaDBOptions{Env: opts.Env})
		return &victim{m.Process, clock, func(t testing.TB) *bed { return mysqlBed(t, m) }, func(b *bed) {
			ids, _ := b.mysql.query(fmt.Sprintf("SELECT id FROM information_schema.processlist WHERE db = '%s'", b.mysql.database))
			for _, id := range ids {
				b.mysql.query("KILL " + id) // the connection may have ended by itself
			}
		}, func(b *bed) { b.mysql.exec(b.t, "CREATE DATABASE "+b.mysql.database) }}
	},
	"PostgreSQL": func(t testing.TB) *victim {
		clock, opts := newClock(t)
		p := servers.StartPostgres(t, servers.PostgresOptions{Env: opts.Env})
		return &victim{p.Process, clock, func(t testing.TB) *bed { return postgresOn(t, p) }, func(b *bed) {
			p.Terminate("application_name = '" + b.pg.schema + "'")
		}, nil}
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
					endsOnHungServers(t, b, []*servers.Process{v.process})
				}},
				{"connections are killed while they are used", func(t *testing.T, b *bed) {
					goesOnWhile(t, b, func() { v.cutOff(b) })
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

// goesOnWhile causes a fault again and again while clients work under a lock.
func goesOnWhile(t *testing.T, b *bed, fault func()) {
	t.Helper()
	h, resource := new(History), new(counter)
	stop := b.busy(h, resource, 4)
	for range 4 {
		fault()
		progress(t, resource, "work goes on after a fault")
	}
	stop()
}

// forgetScripts makes a server of Redis forget its scripts and end the connections of clients.
func forgetScripts(node *servers.Redis) {
	node.Do("SCRIPT", "FLUSH")
	killConnections(node)
}

func TestScriptsAreForgottenAndConnectionsKilledWhileInUse(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		primary := b.primary()
		goesOnWhile(t, b, func() { forgetScripts(primary) })
	})
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		b := quorumBed(t, 3, servers.RedisOptions{})
		goesOnWhile(t, b, func() {
			for _, node := range b.nodes {
				forgetScripts(node)
			}
		})
	})
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
	for _, c := range []*holdfast.Client{late, other, late} {
		again := record(h).must(t, c, "n", wrong/2)
		check(t, resource.add(again.Token()))
		again.mustUnlock(t)
	}
	v.clock.shift(0)
	again := record(h).must(t, late, "n", wrong/2)
	check(t, resource.add(again.Token()))
	again.mustUnlock(t)
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

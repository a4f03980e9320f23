package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A cluster is a Cluster with a store.
type cluster struct {
	*testing.T
	*servers.Cluster
	replicas int
	s        store.Store
}

func startCluster(t *testing.T, replicas int) *cluster {
	c := &cluster{T: t, Cluster: servers.StartCluster(t, servers.RedisOptions{InMemory: true}), replicas: replicas}
	c.s = c.newStore()
	return c
}

func (c *cluster) newStore() store.Store {
	return openURL(c, fmt.Sprintf("redis+cluster://%s?replicas=%d", strings.Join(c.Addrs(), ","), c.replicas))
}

// nameOn returns the n-th name whose keys are on a server.
func (c *cluster) nameOn(node *servers.Redis, n int) string {
	for i := 0; ; i++ {
		if name := "n" + strconv.Itoa(i); c.Primary(redistest.ClusterLockKey(name)) == node {
			if n--; n < 0 {
				return name
			}
		}
	}
}

func (c *cluster) take(name string, queue bool) store.Request {
	c.Helper()
	req := suites.Request(name)
	req.Queue = queue
	if answer, err := c.s.Acquire(c.Context(), req); err != nil || !answer.Granted() != queue {
		c.Fatalf("%s: %+v, %v", name, answer.Refusal, err)
	}
	return req
}

// renewAll renews grants in one call, which must not fail.
func (c *cluster) renewAll(reqs []store.Request) []store.Renewed {
	c.Helper()
	var renewals []store.Renewal
	for _, req := range reqs {
		renewals = append(renewals, suites.Renewal(req))
	}
	ctx, cancel := context.WithTimeout(c.Context(), time.Second)
	defer cancel()
	outcomes, err := c.s.Renew(ctx, renewals)
	if err != nil {
		c.Fatalf("one shard fails the renewals of all: %v", err)
	}
	return outcomes
}

// Each shard has a plain grant, and a grant that has waiters. They are renewed by different
// scripts.
func TestABadShardFailsOnlyItsOwnRenewals(t *testing.T) {
	for what, harm := range map[string]func(*servers.Redis){
		"hung":           (*servers.Redis).Stop,
		"killed":         (*servers.Redis).Kill,
		"scripts unsent": func(r *servers.Redis) { r.Must("SCRIPT", "FLUSH") },
	} {
		t.Run(what, func(t *testing.T) {
			c := startCluster(t, 0)
			var reqs []store.Request
			for i, node := range c.Nodes[:3] {
				for n := range 2 {
					reqs = append(reqs, c.take(c.nameOn(node, n), false))
				}
				c.take(reqs[2*i+1].Name, true)
			}
			harm(c.Nodes[1])
			want := store.Unknown
			if what == "scripts unsent" { // the other shards know the scripts, this one does not
				want = store.Extended
				c.renewAll(append(reqs[:2:2], reqs[4:]...))
			}
			for i, out := range c.renewAll(reqs) {
				if i/2 != 1 && out.Status != store.Extended || i/2 == 1 && out.Status != want {
					t.Errorf("renewal %d, on shard %d: %+v", i, i/2, out)
				}
			}
		})
	}
}

// After a planned failover, subscribers are still connected to the old primary, which is now a
// replica and passes messages on to them.
func TestAfterAPlannedFailoverEveryGrantIsOnTheServer(t *testing.T) {
	c := startCluster(t, 0)
	old, replica := c.Nodes[0], c.Nodes[3]
	name := c.nameOn(old, 0)
	waiters := []store.Store{c.newStore(), c.newStore()}
	holder := c.take(name, false)
	first := suites.Queued(name)
	suites.Refused(t, waiters[0], first)
	if err := waiters[0].Wait(t.Context(), name, first.ID); err != nil { // it listens
		t.Fatal(err)
	}
	replica.Must("CLUSTER", "FAILOVER")
	servers.Poll(t, 10*time.Second, func() error {
		if c.Primary(redistest.ClusterLockKey(name)) != replica {
			return fmt.Errorf("%s is not the primary yet", replica.Addr())
		}
		return nil
	})
	waits := []store.Request{first, {}}
	owner, held := c.s, holder
	for round := range 20 {
		w, other := round%2, 1-round%2
		// The next waiter asks until it is refused, and is then queued.
		servers.Poll(t, 10*time.Second, func() error {
			answer, err := waiters[w].Acquire(t.Context(), waits[w])
			if err == nil && answer.Granted() {
				t.Fatal("granted to two")
			}
			return err
		})
		servers.Poll(t, 10*time.Second, func() error { return owner.Release(t.Context(), name, held.ID, store.Keep{}) })
		granted := time.Now()
		for {
			wait, cancel := context.WithTimeout(t.Context(), redistest.Heartbeat/2)
			waiters[w].Wait(wait, name, waits[w].ID)
			cancel()
			answer, err := waiters[w].Acquire(t.Context(), waits[w])
			if err == nil && answer.Granted() {
				break
			}
			if time.Since(granted) > 10*redistest.Heartbeat {
				t.Fatalf("round %d: not granted: %+v, %v", round, answer.Refusal, err)
			}
		}
		if took := time.Since(granted); took > 2*redistest.Heartbeat {
			t.Errorf("round %d: the hand-off took %v", round, took)
		}
		suites.Extended(t, waiters[w], waits[w]) // otherwise the waiter believes in a grant that no server has
		owner, held = waiters[w], waits[w]
		waits[other] = suites.Queued(name)
	}
}

func TestReplicasThatAreDownDoNotKeepAClusterFromListing(t *testing.T) {
	c := startCluster(t, 0)
	c.take("a", false)
	c.Nodes[3].Kill()
	c.Nodes[4].Stop()
	list := func() (store.Page, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return c.s.List(ctx, store.Query{})
	}
	if page, err := list(); err != nil || len(page.Locks) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	c.Nodes[2].Stop() // a primary
	if page, err := list(); err == nil {
		t.Errorf("%+v without the names of a hung primary", page)
	}
}

func (c *cluster) slot(name string) string {
	return strconv.FormatInt(c.Nodes[0].Must("CLUSTER", "KEYSLOT", redistest.ClusterLockKey(name)).(int64), 10)
}

// While a slot migrates, scripts with several keys are refused unless one server has all of them.
func TestAMigratingSlotDelaysCallsAndLosesNothing(t *testing.T) {
	for _, replicas := range []int{0, 1} {
		t.Run(fmt.Sprint("replicas: ", replicas), func(t *testing.T) { migrateSlot(t, startCluster(t, replicas)) })
	}
}

func migrateSlot(t *testing.T, c *cluster) {
	name := c.nameOn(c.Nodes[0], 0)
	held := c.take(name, false)
	other := c.newStore()
	slot := c.slot(name)
	inSlot := func(name string) string {
		for i := 0; ; i++ {
			if one := fmt.Sprint(name, i); c.slot(one) == slot {
				return one
			}
		}
	}
	// A grant that was pushed to a waiter, one that was requested with a block of tokens, and one
	// that others wait for.
	before, block, wanted := c.take(inSlot("pushed"), false), suites.Request(inSlot("block")), c.take(inSlot("wanted"), false)
	pushed, waiter := c.take(before.Name, true), c.take(wanted.Name, true)
	block.Tokens = 2
	suites.Granted(t, c.s, block)
	suites.Release(t, c.s, before)
	if c.replicas > 0 { // then nothing is pushed
		suites.Granted(t, c.s, pushed)
	}
	moveKeys, finish := c.MoveSlot(redistest.ClusterLockKey(name))

	// An exclusive grant is renewed nevertheless, before and after its keys were moved.
	renew := func(when string) {
		for _, req := range []store.Request{held, block, pushed, wanted} {
			for range 2 {
				short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				out, err := c.s.Renew(short, []store.Renewal{{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode, Tokens: req.Tokens - 1}})
				if err != nil || out[0].Status != store.Extended {
					t.Errorf("renewal of %s %s: %+v, %v", req.Name, when, out, err)
				}
			}
		}
	}
	renew("while the slot migrates")
	// A call with several keys ends with its context, and its error says why.
	waiting := suites.Queued(name)
	for _, req := range []store.Request{waiting, suites.Request(inSlot("free"))} {
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := other.Acquire(short, req)
		if err == nil || !strings.Contains(err.Error(), "being moved") || time.Since(begin) < 250*time.Millisecond {
			t.Errorf("%s: error %v after %v, want that the slot is being moved, at the deadline", req.Name, err, time.Since(begin))
		}
	}
	moveKeys()
	renew("after its keys were moved")
	// The call succeeds when the slot has moved.
	results := make(chan error, 1)
	go func() {
		answer, err := other.Acquire(t.Context(), waiting)
		if err == nil && answer.Granted() {
			err = fmt.Errorf("granted to two")
		}
		results <- err
	}()
	time.Sleep(50 * time.Millisecond)
	finish()
	select {
	case err := <-results:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the call does not return although the slot has moved")
	}
	// A subscription that was on the old server is repeated.
	for range 5 {
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := c.s.Wait(short, waiter.Name, waiter.ID); err != nil && strings.Contains(err.Error(), "redis+cluster") {
			t.Errorf("an error with advice for another store: %v", err)
		}
	}
	suites.Release(t, c.s, held)
	suites.Granted(t, other, waiting)
}

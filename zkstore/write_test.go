package zkstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A crowd sends requests through a slow network, so that they are batched.
type crowd struct {
	t           *testing.T
	s, other    *Store
	proxy       *faultproxy.Proxy
	admin       admin
	root        string
	firstTokens []<-chan result // requests in flight, not in a batch
}

type result = suites.LaterResult[store.Answer]

const crowdSize = 12

func crowdName(i int) string { return fmt.Sprint("n", i) }

func gather(t *testing.T, server *servers.ZooKeeper, root string) *crowd {
	c := &crowd{t: t, root: root, proxy: faultproxy.Start(t, server.Addr()), admin: connect(t, server.Addr())}
	c.s, c.other = openQuick(t, "zk://"+c.proxy.Addr()+root+"?session=20s"), openQuick(t, "zk://"+server.Addr()+root)
	c.s.writes.MaxWait = 0     // the network holds requests for longer than that, and they must stay queued
	for i := range crowdSize { // creates the buckets
		req := request(crowdName(i))
		try(t, c.s, req)
		suites.Release(t, c.s, req)
	}
	c.proxy.ToServer.Hold()
	for i := range maxInFlight {
		c.firstTokens = append(c.firstTokens, c.later(within(t), request(crowdName(i))))
	}
	return c
}

// later requests a name, and returns when the request is in flight or queued.
func (c *crowd) later(ctx context.Context, req store.Request) <-chan result {
	c.t.Helper()
	return suites.Later(c.t, c.s.writes.Len, func() (store.Answer, error) { return c.s.Acquire(ctx, req) })
}

// rest requests all further names. These requests are queued. The results are indexed by name.
func (c *crowd) rest() (reqs []store.Request, all []<-chan result) {
	c.t.Helper()
	reqs = make([]store.Request, crowdSize)
	for i := maxInFlight; i < crowdSize; i++ {
		reqs[i] = request(crowdName(i))
		all = append(all, c.later(within(c.t), reqs[i]))
	}
	return reqs, all
}

func granted(t *testing.T, c <-chan result) int64 {
	t.Helper()
	r := <-c
	if r.Err != nil || !r.Value.Granted() {
		t.Fatalf("%+v, %v", r.Value.Refusal, r.Err)
	}
	return r.Value.Token
}

func TestBatches(t *testing.T) {
	// The server does not remove empty buckets.
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Java: []string{"-Dznode.container.checkIntervalMs=3600000"}})
	t.Parallel()
	for i, test := range []struct {
		name string
		run  func(t *testing.T, c *crowd)
	}{
		{"queued requests are sent in one transaction", sentTogether},
		{"a request that is refused does not affect the others", refusedAlone},
		{"grants whose replies are lost are found again", repliesLost},
		{"requests whose callers give up without a connection are not sent", neverSent},
		{"without a connection no batch outlives its callers", callersGone},
		{"a grant that no caller waits for ends with its TTL", abandoned},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, gather(t, server, fmt.Sprint("/batches", i)))
		})
	}
}

func sentTogether(t *testing.T, c *crowd) {
	reqs, all := c.rest()
	c.proxy.Heal()
	for _, one := range c.firstTokens {
		granted(t, one)
	}
	token := granted(t, all[0])
	for i, one := range all[1:] { // all tokens are computed from the zxid of the transaction
		if got := granted(t, one); got != token {
			t.Errorf("%d has token %d, the first has %d", i+1, got, token)
		}
	}
	for i := maxInFlight; i < crowdSize; i++ {
		if answer := try(t, c.other, request(crowdName(i))); answer.Granted() || answer.Refusal.Holders[0].ID != reqs[i].ID {
			t.Errorf("%d is held by another request: %+v", i, answer)
		}
	}
}

func refusedAlone(t *testing.T, c *crowd) {
	taken := maxInFlight + 1
	try(t, c.other, request(crowdName(taken)))
	_, all := c.rest()
	c.proxy.Heal()
	for i, one := range all {
		if i+maxInFlight != taken {
			granted(t, one)
			continue
		}
		if r := <-one; r.Err != nil || r.Value.Granted() {
			t.Errorf("the name that another holds: %+v, %v", r.Value, r.Err)
		}
	}
}

func repliesLost(t *testing.T, c *crowd) {
	reqs, all := c.rest()
	lost := c.proxy.DropRepliesAfter(has(reqs[crowdSize-1].ID))
	c.proxy.Heal()
	<-lost
	c.proxy.Cut()
	c.proxy.Heal()
	for i, one := range all {
		r := <-one
		if r.Err != nil {
			r.Value = try(t, c.s, reqs[i+maxInFlight])
		}
		if !r.Value.Granted() {
			t.Errorf("%d: %+v, %v", i, r.Value.Refusal, r.Err)
		}
		suites.Release(t, c.s, reqs[i+maxInFlight])
	}
}

// disconnect ends the connection and keeps the store from making another.
func (c *crowd) disconnect() {
	c.t.Helper()
	c.proxy.Cut()
	for _, one := range c.firstTokens {
		<-one
	}
	suites.Eventually(c.t, "the connection does not end", func() bool { return !c.s.wire.Connected() })
}

// impatient requests names. The callers wait until giveUp is called.
func (c *crowd) impatient(from, to int) (giveUp func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var all []<-chan result
	for i := from; i < to; i++ {
		all = append(all, c.later(ctx, request(crowdName(i))))
	}
	return func() {
		cancel()
		for _, one := range all {
			if r := <-one; !errors.Is(r.Err, context.Canceled) {
				c.t.Errorf("%+v, %v though the caller gave up", r.Value, r.Err)
			}
		}
	}
}

func neverSent(t *testing.T, c *crowd) {
	c.disconnect()
	alone := c.impatient(1, 1+maxInFlight)
	queued := c.impatient(1+maxInFlight, crowdSize)
	first := c.later(within(t), request(crowdName(0)))
	alone() // so that the others are in one batch
	queued()
	c.proxy.Heal()
	granted(t, first)
	for i := 1; i < crowdSize; i++ {
		if answer := try(t, c.other, request(crowdName(i))); !answer.Granted() {
			t.Errorf("%d is held by a request whose caller gave up: %+v", i, answer.Refusal)
		}
	}
}

func callersGone(t *testing.T, c *crowd) {
	c.disconnect()
	alone := c.impatient(0, maxInFlight)
	queued := c.impatient(maxInFlight, crowdSize)
	alone() // so that the others are in one batch
	queued()
	suites.Eventually(t, "writes are queued or in flight", func() bool { return c.s.writes.Len() == 0 })
}

func abandoned(t *testing.T, c *crowd) {
	c.proxy.Heal()
	req := request("abandoned")
	req.TTL = time.Second
	try(t, c.s, req) // creates the bucket
	suites.Release(t, c.s, req)
	req.ID = store.NewID()
	lost := c.proxy.HoldRepliesAfter(has(req.ID))
	ctx, cancel := context.WithCancel(t.Context())
	done := c.later(ctx, req)
	<-lost
	suites.Eventually(t, "the server does not reply", func() bool { return c.proxy.ToClient.Waiting() > 0 })
	if answer := try(t, c.other, request(req.Name)); answer.Granted() {
		t.Fatal("the request did not arrive")
	}
	cancel()
	if r := <-done; !errors.Is(r.Err, context.Canceled) {
		t.Fatalf("%+v, %v", r.Value, r.Err)
	}
	c.proxy.Heal()
	suites.Eventually(t, "the grant does not end", func() bool { return try(t, c.other, request(req.Name)).Granted() })
}

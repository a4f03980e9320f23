package zkstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A crowd is calls that go together because the network is slow.
type crowd struct {
	t           *testing.T
	s, other    *Store
	proxy       *faultproxy.Proxy
	admin       admin
	root        string
	firstTokens []<-chan result // of those who go each for itself
}

type result struct {
	store.Answer
	err error
}

const crowdSize = 12

func crowdName(i int) string { return fmt.Sprint("n", i) }

func gather(t *testing.T, server *servers.ZooKeeper, root string) *crowd {
	c := &crowd{t: t, root: root, proxy: faultproxy.Start(t, server.Addr()), admin: connect(t, server.Addr())}
	c.s = openQuick(t, "zk://"+c.proxy.Addr()+root+"?session=20s")
	c.s.writes.MaxWait = 0 // a network that is held is not far
	t.Cleanup(func() { c.s.Close() })
	c.other = openQuick(t, "zk://"+server.Addr()+root)
	t.Cleanup(func() { c.other.Close() })
	for i := range crowdSize { // makes the buckets
		req := request(crowdName(i))
		try(t, c.s, req)
		if err := c.s.Release(bounded(t), req.Name, req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
	}
	c.proxy.ToServer.Hold()
	for i := range maxInFlight {
		c.firstTokens = append(c.firstTokens, c.later(bounded(t), request(crowdName(i))))
	}
	return c
}

// later asks, and returns when the request is on its way or waits.
func (c *crowd) later(ctx context.Context, req store.Request) <-chan result {
	c.t.Helper()
	count := c.s.writes.Len
	n, done := count(), make(chan result, 1)
	go func() {
		answer, err := c.s.Acquire(ctx, req)
		done <- result{answer, err}
	}()
	servers.Poll(c.t, limit, func() error {
		if count() <= n {
			return errors.New("it has not started")
		}
		return nil
	})
	return done
}

// rest asks for all further names: they wait. Requests are by the number of their name.
func (c *crowd) rest() (reqs []store.Request, all []<-chan result) {
	c.t.Helper()
	reqs = make([]store.Request, crowdSize)
	for i := maxInFlight; i < crowdSize; i++ {
		reqs[i] = request(crowdName(i))
		all = append(all, c.later(bounded(c.t), reqs[i]))
	}
	return reqs, all
}

func granted(t *testing.T, c <-chan result) int64 {
	t.Helper()
	r := <-c
	if r.err != nil || !r.Granted() {
		t.Fatalf("%+v, %v", r.Refusal, r.err)
	}
	return r.Token
}

func TestJobs(t *testing.T) {
	// Buckets that are empty stay.
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Java: []string{"-Dznode.container.checkIntervalMs=3600000"}})
	t.Parallel()
	for i, test := range []struct {
		name string
		run  func(t *testing.T, c *crowd)
	}{
		{"who comes while others are on their way go together", jobsTogether},
		{"one that is refused is refused alone", jobRefused},
		{"who gives up before its turn is not sent", jobGivenUp},
		{"what was done when the connection broke is found", jobsCutOff},
		{"what was lost with the connection is not granted", jobsLost},
		{"what nobody waits for any more ends with its TTL", jobAbandoned},
		{"locks that were held for long leave no parents", jobsHeldLong},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, gather(t, server, fmt.Sprint("/jobs", i)))
		})
	}
}

func jobsTogether(t *testing.T, c *crowd) {
	reqs, all := c.rest()
	c.proxy.Heal()
	for _, one := range c.firstTokens {
		granted(t, one)
	}
	token := granted(t, all[0])
	for i, one := range all[1:] { // the number of the transaction
		if got := granted(t, one); got != token {
			t.Errorf("%d has token %d, the first has %d", i+1, got, token)
		}
	}
	for i := maxInFlight; i < crowdSize; i++ {
		if answer := try(t, c.other, request(crowdName(i))); answer.Granted() || answer.Refusal.Holders[0].ID != reqs[i].ID {
			t.Errorf("%d is not held by who was granted it: %+v", i, answer)
		}
	}
}

func jobRefused(t *testing.T, c *crowd) {
	taken := maxInFlight + 1
	try(t, c.other, request(crowdName(taken)))
	_, all := c.rest()
	c.proxy.Heal()
	for i, one := range all {
		if i+maxInFlight != taken {
			granted(t, one)
			continue
		}
		if r := <-one; r.err != nil || r.Granted() {
			t.Errorf("the name that another holds: %+v, %v", r.Answer, r.err)
		}
	}
}

func jobGivenUp(t *testing.T, c *crowd) {
	ctx, cancel := context.WithCancel(t.Context())
	req := request(crowdName(maxInFlight))
	given := c.later(ctx, req)
	other := c.later(bounded(t), request(crowdName(maxInFlight+1)))
	cancel()
	if r := <-given; !errors.Is(r.err, context.Canceled) {
		t.Errorf("%+v, %v", r.Answer, r.err)
	}
	c.proxy.Heal()
	granted(t, other)
	if answer := try(t, c.other, request(req.Name)); !answer.Granted() {
		t.Errorf("it was sent: %+v", answer.Refusal)
	}
}

func jobsCutOff(t *testing.T, c *crowd) {
	reqs, all := c.rest()
	lost := c.proxy.DropRepliesAfter(has(reqs[crowdSize-1].ID))
	c.proxy.Heal()
	<-lost
	c.proxy.Cut()
	c.proxy.Heal()
	for i, one := range all {
		r := <-one
		if r.err != nil {
			r.Answer = try(t, c.s, reqs[i+maxInFlight])
		}
		if !r.Granted() {
			t.Errorf("%d: %+v, %v", i, r.Refusal, r.err)
		}
		if err := c.s.Release(bounded(t), crowdName(i+maxInFlight), reqs[i+maxInFlight].ID, store.Keep{}); err != nil {
			t.Errorf("%d: release: %v", i, err)
		}
	}
}

func jobsLost(t *testing.T, c *crowd) {
	reqs, all := c.rest()
	c.proxy.Cut() // what is held is lost
	for _, one := range c.firstTokens {
		if r := <-one; r.err == nil {
			t.Errorf("granted by a request that was lost: %+v", r.Answer)
		}
	}
	c.proxy.Heal()
	for i, one := range all { // they were not on their way yet
		r, req := <-one, reqs[i+maxInFlight]
		if r.err != nil {
			r.Answer = try(t, c.s, req)
		}
		if !r.Granted() {
			t.Errorf("%d: %+v", i, r.Refusal)
		}
		if answer := try(t, c.other, request(req.Name)); answer.Granted() || answer.Refusal.Holders[0].ID != req.ID {
			t.Errorf("%d is not held by who was granted it: %+v", i, answer)
		}
	}
}

func jobAbandoned(t *testing.T, c *crowd) {
	c.proxy.Heal()
	req := request("abandoned")
	req.TTL = time.Second
	try(t, c.s, req) // makes the bucket
	if err := c.s.Release(bounded(t), req.Name, req.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	req.ID = store.NewID()
	lost := c.proxy.HoldRepliesAfter(has(req.ID))
	ctx, cancel := context.WithCancel(t.Context())
	done := c.later(ctx, req)
	<-lost
	servers.Poll(t, limit, func() error { // the server has it
		if c.proxy.ToClient.Waiting() == 0 {
			return errors.New("no answer")
		}
		return nil
	})
	if answer := try(t, c.other, request(req.Name)); answer.Granted() {
		t.Fatal("the request did not arrive")
	}
	cancel()
	if r := <-done; !errors.Is(r.err, context.Canceled) {
		t.Fatalf("%+v, %v", r.Answer, r.err)
	}
	c.proxy.Heal()
	servers.Poll(t, limit, func() error {
		if answer := try(t, c.other, request(req.Name)); !answer.Granted() {
			return fmt.Errorf("it is still held: %+v", answer.Refusal)
		}
		return nil
	})
}

func jobsHeldLong(t *testing.T, c *crowd) {
	c.proxy.Heal()
	for _, one := range c.firstTokens {
		granted(t, one)
	}
	reqs := make([]store.Request, crowdSize)
	for i := maxInFlight; i < crowdSize; i++ {
		reqs[i] = request(crowdName(i))
		try(t, c.s, reqs[i])
	}
	time.Sleep(2 * brief)
	c.proxy.ToServer.Hold()
	released := make(chan error, crowdSize)
	for i := maxInFlight; i < crowdSize; i++ {
		go func() { released <- c.s.Release(bounded(t), reqs[i].Name, reqs[i].ID, store.Keep{}) }()
	}
	servers.Poll(t, limit, func() error {
		if n := c.s.writes.Len(); n < crowdSize-maxInFlight {
			return fmt.Errorf("%d are released", n)
		}
		return nil
	})
	c.proxy.Heal()
	for range crowdSize - maxInFlight {
		if err := <-released; err != nil {
			t.Error(err)
		}
	}
	// What is sent behind is done before what is asked now.
	try(t, c.s, request("mark"))
	for i := maxInFlight; i < crowdSize; i++ {
		parent, _ := c.s.place(crowdName(i))
		if err := c.admin.Do(bounded(t), &wire.Call{Op: wire.Exists(parent, false)}); err != wire.ErrNoNode {
			t.Errorf("%s is left: %v", parent, err)
		}
	}
}

package rediscore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A slowNet is a store behind a proxy that can hold its calls, so that further calls are batched.
type slowNet struct {
	*testing.T
	server   *servers.Redis
	proxy    *faultproxy.Proxy
	s, other *Store
	first    []<-chan result // the calls in flight, not in a batch
}

type result struct {
	store.Answer
	err error
}

func newSlowNet(t *testing.T) *slowNet {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	c := &slowNet{T: t, server: server, proxy: faultproxy.Start(t, server.Addr())}
	c.s, c.other = open(t, c.proxy.Addr()), open(t, server.Addr())
	c.s.batch.MaxWait = 0
	for _, s := range []*Store{c.s, c.other} { // the server learns the scripts
		for i := range 2 {
			req := plain(fmt.Sprint("warm", i))
			c.must(s, req)
			if err := s.Release(c.ctx(), req.Name, req.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.hold()
	return c
}

// hold holds the network while maxInFlight calls are in flight, so that further calls are batched.
func (c *slowNet) hold() {
	servers.Poll(c, 10*time.Second, func() error { // a call returns before it is counted as done
		if n := c.s.batch.Len(); n > 0 {
			return fmt.Errorf("%d calls in flight", n)
		}
		return nil
	})
	c.proxy.ToServer.Hold()
	for i := range maxInFlight {
		c.first = append(c.first, c.later(c.ctx(), plain(fmt.Sprint("first", i, store.NewID()))))
	}
}

func (c *slowNet) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	c.Cleanup(cancel)
	return ctx
}

func plain(name string) store.Request {
	return store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: time.Minute, Tokens: 1, Owner: "me"}
}

func (c *slowNet) must(s *Store, req store.Request) store.Answer {
	c.Helper()
	answer, err := s.Acquire(c.ctx(), req)
	if err != nil || !answer.Granted() {
		c.Fatalf("%+v, %v", answer.Refusal, err)
	}
	return answer
}

// later makes a call, and returns when it is in flight or queued.
func (c *slowNet) later(ctx context.Context, req store.Request) <-chan result {
	c.Helper()
	n, done := c.s.batch.Len(), make(chan result, 1)
	go func() {
		answer, err := c.s.Acquire(ctx, req)
		done <- result{answer, err}
	}()
	servers.Poll(c, 10*time.Second, func() error {
		if c.s.batch.Len() <= n {
			return errors.New("the call is not in flight")
		}
		return nil
	})
	return done
}

func (c *slowNet) granted(all ...<-chan result) (tokens []int64) {
	c.Helper()
	for i, one := range all {
		r := <-one
		if r.err != nil || !r.Granted() {
			c.Fatalf("%d: %+v, %v", i, r.Refusal, r.err)
		}
		tokens = append(tokens, r.Token)
	}
	return tokens
}

// free returns an error unless a name is free.
func (c *slowNet) free(name string) error {
	req := plain(name)
	answer, err := c.other.Acquire(c.ctx(), req)
	if err != nil {
		return err
	}
	if !answer.Granted() {
		return fmt.Errorf("%s is held: %+v", name, answer.Refusal)
	}
	return c.other.Release(c.ctx(), name, req.ID, store.Keep{})
}

func TestConcurrentCallsAreBatched(t *testing.T) {
	c := newSlowNet(t)
	const n = 20
	var reqs []store.Request
	var all []<-chan result
	for i := range n {
		reqs = append(reqs, plain(fmt.Sprint("n", i)))
		all = append(all, c.later(c.ctx(), reqs[i]))
	}
	c.server.Must("CONFIG", "RESETSTAT")
	c.proxy.Heal()
	c.granted(c.first...)
	tokens := c.granted(all...)
	if !slices.IsSorted(tokens) || tokens[n-1] != tokens[0]+n-1 {
		t.Errorf("tokens %v", tokens)
	}
	got := calls(t, c.server)
	if got["incrby"] != maxInFlight+1 || got["rpush"] != maxInFlight+n || got["evalsha"] != maxInFlight+1 {
		t.Errorf("commands: %v", got)
	}
	// Each caller holds its lock, and can release it.
	answer, err := c.other.Acquire(c.ctx(), plain("n3"))
	if err != nil || answer.Granted() {
		t.Fatalf("%+v, %v", answer, err)
	}
	if h := answer.Refusal.Holders[0]; h.ID != reqs[3].ID || h.Token != tokens[3] || h.Left <= 0 || h.Left > reqs[3].TTL {
		t.Errorf("%+v", h)
	}
	for _, req := range reqs {
		if err := c.s.Release(c.ctx(), req.Name, req.ID, store.Keep{}); err != nil {
			t.Error(err)
		}
		if err := c.free(req.Name); err != nil {
			t.Error(err)
		}
	}
}

// In this test two goroutines compete for each name.
func TestManyConcurrentLocksLeaveNothingBehind(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	s := open(t, server.Addr())
	const goroutines, pairs = 64, 100
	held := make([]atomic.Int32, goroutines/2)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for taken := 0; taken < pairs; {
				req := plain(fmt.Sprint("n", g/2))
				answer, err := s.Acquire(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				if !answer.Granted() {
					continue
				}
				if n := held[g/2].Add(1); n != 1 {
					t.Errorf("%d hold %s", n, req.Name)
				}
				held[g/2].Add(-1)
				taken++
				if err := s.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := calls(t, server)
	if got["evalsha"] >= goroutines*pairs || got["incrby"] == 0 {
		t.Errorf("%d pairs took %v", goroutines*pairs, got)
	}
	if left := server.Must("KEYS", "*").([]any); len(left) != 1 {
		t.Errorf("keys left: %v", left)
	}
}

func TestAHeldLockIsRefusedAloneInABatch(t *testing.T) {
	c := newSlowNet(t)
	holder := plain("held")
	c.must(c.other, holder)
	a, held, b := c.later(c.ctx(), plain("a")), c.later(c.ctx(), plain("held")), c.later(c.ctx(), plain("b"))
	c.proxy.Heal()
	c.granted(a, b)
	r := <-held
	if r.err != nil || r.Granted() || r.Refusal.Holders[0].ID != holder.ID || r.Refusal.Holders[0].Left <= 0 {
		t.Errorf("%+v, %v", r.Answer, r.err)
	}
	if n := c.server.Must("LLEN", Prefix+"lock:held"); n != int64(1) {
		t.Errorf("%v records of one holder", n)
	}
	if err := c.other.Release(c.ctx(), "held", holder.ID, store.Keep{}); err != nil {
		t.Error(err)
	}
	if err := c.free("held"); err != nil {
		t.Error(err)
	}
}

func TestTokensOfABatchGrowWhenTheCounterIsLost(t *testing.T) {
	for what, change := range map[string]func(c *slowNet){
		"lost":       func(c *slowNet) { c.server.Must("DEL", "holdfast:token") },
		"far behind": func(c *slowNet) { c.server.Must("SET", "holdfast:token", "1000000000000001") },
	} {
		t.Run(what, func(t *testing.T) {
			c := newSlowNet(t)
			before := c.must(c.other, plain("before")).Token
			var all []<-chan result
			for i := range 5 {
				all = append(all, c.later(c.ctx(), plain(fmt.Sprint("n", i))))
			}
			change(c)
			time.Sleep(250 * time.Millisecond) // a failover to a replica that lags behind takes longer
			c.proxy.Heal()
			c.granted(c.first...)
			tokens := c.granted(all...)
			slices.Sort(tokens)
			if tokens[0] <= before || len(slices.Compact(tokens)) != 5 {
				t.Errorf("tokens %v after %d", tokens, before)
			}
			if after := c.must(c.other, plain("after")).Token; after <= tokens[len(tokens)-1] {
				t.Errorf("token %d after %v", after, tokens)
			}
		})
	}
}

func TestACancelledCallInTheQueueIsNotSent(t *testing.T) {
	c := newSlowNet(t)
	ctx, cancel := context.WithCancel(t.Context())
	given, other := c.later(ctx, plain("given")), c.later(c.ctx(), plain("other"))
	cancel()
	if r := <-given; !errors.Is(r.err, context.Canceled) {
		t.Errorf("%+v, %v", r.Answer, r.err)
	}
	c.proxy.Heal()
	c.granted(other)
	if err := c.free("given"); err != nil {
		t.Error(err)
	}
}

// A heldConn holds calls before they are written, as a client library does while it connects.
type heldConn struct {
	Conn
	held   func(call Call) bool
	goOn   chan struct{}
	before chan struct{} // gets a value for each call that is held
}

func (h *heldConn) Run(ctx context.Context, calls ...Call) []Reply {
	if h.held(calls[0]) {
		h.before <- struct{}{}
		<-h.goOn
	}
	return h.Conn.Run(ctx, calls...)
}

// A request that was cancelled before it was written must not take the lock after its Leave.
func TestLeaveIsNotSentBeforeTheRequestThatItUndoes(t *testing.T) {
	for lane, queued := range map[string]bool{"complete, alone": true, "plain, alone": false, "plain, in a batch": false} {
		t.Run(lane, func(t *testing.T) {
			server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
			s, other := open(t, server.Addr()), open(t, server.Addr())
			req := plain("given")
			req.Queue = queued
			if queued { // by the complete lane
				s.hints.contended.add(req.Name)
			}
			held := &heldConn{Conn: s.conn, goOn: make(chan struct{}), before: make(chan struct{}, 10)}
			held.held = func(call Call) bool { return call.Script == plainScript || call.Script == acquireScript }
			s.conn = held
			if strings.HasSuffix(lane, "batch") { // behind a call in flight
				s.batch.MaxInFlight, s.batch.MaxWait = 1, time.Nanosecond
				go s.Acquire(t.Context(), plain("first"))
				<-held.before
			}
			ctx, cancel := context.WithCancel(t.Context())
			given := make(chan error, 1)
			go func() {
				_, err := s.Acquire(ctx, req)
				given <- err
			}()
			<-held.before
			cancel()
			if err := <-given; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			left := make(chan error, 1)
			go func() { left <- s.Leave(context.Background(), req.Name, req.ID) }()
			short, cancelShort := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancelShort()
			if err := s.Leave(short, req.Name, req.ID); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Leave before the request was written: %v", err)
			}
			close(held.goOn)
			if err := <-left; err != nil {
				t.Error(err)
			}
			answer, err := other.Acquire(t.Context(), plain("given"))
			if err != nil || !answer.Granted() {
				t.Errorf("after Leave: %+v, %v", answer.Refusal, err)
			}
			servers.Poll(t, 10*time.Second, func() error {
				s.late.mu.Lock()
				defer s.late.mu.Unlock()
				if n := len(s.late.calls); n > 0 {
					return fmt.Errorf("%d requests are still recorded as under way", n)
				}
				return nil
			})
		})
	}
}

func TestCloseEndsQueuedCalls(t *testing.T) {
	c := newSlowNet(t)
	waiting := c.later(context.Background(), plain("waiting"))
	c.proxy.ToClient.Hold()
	c.proxy.ToServer.Heal()
	c.s.Close()
	for _, one := range append(c.first, waiting) {
		if r := <-one; !errors.Is(r.err, store.ErrClosed) {
			t.Errorf("%+v, %v", r.Answer, r.err)
		}
	}
}

// A call that got no reply is repeated under the same identity. If the first call were undone when
// its late reply arrives, that would end the grant that the second call returned.
func TestALateReplyDoesNotEndTheGrantOfARepeatedCall(t *testing.T) {
	c := newSlowNet(t)
	const n = 20
	ctx, cancel := context.WithCancel(t.Context())
	var reqs []store.Request
	var given, again []<-chan result
	for i := range n {
		req := plain(fmt.Sprint("n", i))
		reqs, given = append(reqs, req), append(given, c.later(ctx, req))
	}
	last := reqs[n-1]
	arrived := c.proxy.HoldRepliesAfter(func(b []byte) bool { return bytes.Contains(b, []byte(last.ID.String())) })
	c.proxy.ToServer.Heal()
	<-arrived
	servers.Poll(t, 10*time.Second, func() error {
		if c.server.Must("EXISTS", Prefix+"lock:"+last.Name) != int64(1) {
			return errors.New("the lock is not taken")
		}
		return nil
	})
	cancel()
	for i := range given {
		if r := <-given[i]; !errors.Is(r.err, context.Canceled) {
			t.Fatalf("%+v, %v", r.Answer, r.err)
		}
	}
	for i := range reqs {
		done := make(chan result, 1)
		again = append(again, done)
		go func() {
			answer, err := c.s.Acquire(c.ctx(), reqs[i])
			done <- result{answer, err}
		}()
	}
	c.proxy.Heal()
	c.granted(again...)
	servers.Poll(t, 10*time.Second, func() error {
		if left := c.s.batch.Len(); left > 0 {
			return fmt.Errorf("%d calls in flight", left)
		}
		return nil
	})
	for i := range reqs {
		if err := c.s.Release(c.ctx(), reqs[i].Name, reqs[i].ID, store.Keep{}); err != nil {
			t.Errorf("%s: %v", reqs[i].Name, err)
		}
	}
}

// A batch takes locks, which needs memory, and releases others, which must not need it.
func TestAFullServerReleasesLocksInBatches(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	s := open(t, server.Addr())
	server.Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for ctx.Err() == nil {
				req := plain(fmt.Sprint("n", i))
				answer, err := s.Acquire(t.Context(), req)
				if err != nil {
					if !strings.Contains(err.Error(), "raise maxmemory") {
						t.Errorf("acquire: %v", err)
					}
					continue
				}
				if !answer.Granted() {
					t.Errorf("refused: %+v", answer.Refusal)
				} else if err := s.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
					t.Errorf("release: %v", err)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	for range 100 {
		server.Must("CONFIG", "SET", "maxmemory", "1mb")
		server.Must("CONFIG", "SET", "maxmemory", "0")
		before := server.Must("GET", Prefix+"token")
		for !t.Failed() && server.Must("GET", Prefix+"token") == before {
		}
	}
	cancel()
	wg.Wait()
}

func TestAForeignKeyFailsOnlyTheCallForIt(t *testing.T) {
	c := newSlowNet(t)
	c.server.Must("SET", Prefix+"lock:foreign", "1")
	a, foreign, b := c.later(c.ctx(), plain("a")), c.later(c.ctx(), plain("foreign")), c.later(c.ctx(), plain("b"))
	c.proxy.Heal()
	c.granted(a, b)
	if r := <-foreign; r.err == nil || !strings.Contains(r.err.Error(), "another program") {
		t.Errorf("%+v, %v", r.Answer, r.err)
	}
}

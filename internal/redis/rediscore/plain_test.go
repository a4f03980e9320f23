package rediscore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
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

type result = suites.LaterResult[store.Answer]

func newSlowNet(t *testing.T) *slowNet {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	c := &slowNet{T: t, server: server, proxy: faultproxy.Start(t, server.Addr())}
	c.s, c.other = open(t, c.proxy.Addr()), open(t, server.Addr())
	c.s.batch.MaxWait = 0
	for _, s := range []*Store{c.s, c.other} { // the server learns the scripts
		for i := range 2 {
			req := plain(fmt.Sprint("warm", i))
			suites.Granted(c, s, req)
			suites.Release(c, s, req)
		}
	}
	suites.Eventually(c, "calls are in flight", func() bool { return c.s.batch.Len() == 0 }) // a call returns before it is counted as done
	c.proxy.ToServer.Hold()
	for i := range maxInFlight {
		c.first = append(c.first, c.later(suites.Limited(c), plain(fmt.Sprint("first", i))))
	}
	return c
}

var plain = suites.Request

// later makes a call, and returns when it is in flight or queued.
func (c *slowNet) later(ctx context.Context, req store.Request) <-chan result {
	c.Helper()
	return suites.Later(c, c.s.batch.Len, func() (store.Answer, error) { return c.s.Acquire(ctx, req) })
}

func (c *slowNet) granted(all ...<-chan result) (tokens []int64) {
	c.Helper()
	for i, one := range all {
		r := <-one
		if r.Err != nil || !r.Value.Granted() {
			c.Fatalf("%d: %+v, %v", i, r.Value.Refusal, r.Err)
		}
		tokens = append(tokens, r.Value.Token)
	}
	return tokens
}

func TestConcurrentCallsAreBatched(t *testing.T) {
	c := newSlowNet(t)
	const n = 20
	var reqs []store.Request
	var all []<-chan result
	for i := range n {
		reqs = append(reqs, plain(fmt.Sprint("n", i)))
		all = append(all, c.later(suites.Limited(c), reqs[i]))
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
	if h := suites.Refused(t, c.other, plain("n3")).Holders[0]; h.ID != reqs[3].ID || h.Token != tokens[3] || h.Left <= 0 || h.Left > reqs[3].TTL {
		t.Errorf("%+v", h)
	}
	for _, req := range reqs {
		suites.Release(t, c.s, req)
		suites.Granted(t, c.other, plain(req.Name))
	}
}

func TestACallOfABatchFailsAlone(t *testing.T) {
	c := newSlowNet(t)
	holder := plain("held")
	suites.Granted(t, c.other, holder)
	c.server.Must("SET", Prefix+"lock:foreign", "1")
	var calls []<-chan result
	for _, name := range []string{"a", "held", "foreign", "b"} {
		calls = append(calls, c.later(suites.Limited(t), plain(name)))
	}
	c.proxy.Heal()
	c.granted(calls[0], calls[3])
	if r := <-calls[1]; r.Err != nil || r.Value.Granted() || r.Value.Refusal.Holders[0].ID != holder.ID {
		t.Errorf("held: %+v", r)
	}
	if r := <-calls[2]; r.Err == nil || !strings.Contains(r.Err.Error(), "another program") {
		t.Errorf("foreign: %+v", r)
	}
	suites.Release(t, c.other, holder)
	suites.Granted(t, c.other, plain("held"))
}

func TestTokensOfABatchGrowWhenTheCounterIsLost(t *testing.T) {
	for what, change := range map[string]func(c *slowNet){
		"lost":       func(c *slowNet) { c.server.Must("DEL", "holdfast:token") },
		"far behind": func(c *slowNet) { c.server.Must("SET", "holdfast:token", "1000000000000001") },
	} {
		t.Run(what, func(t *testing.T) {
			c := newSlowNet(t)
			before := suites.Granted(t, c.other, plain("before")).Token
			var all []<-chan result
			for i := range 5 {
				all = append(all, c.later(suites.Limited(c), plain(fmt.Sprint("n", i))))
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
			if after := suites.Granted(t, c.other, plain("after")).Token; after <= tokens[len(tokens)-1] {
				t.Errorf("token %d after %v", after, tokens)
			}
		})
	}
}

func TestACancelledCallInTheQueueIsNotSent(t *testing.T) {
	c := newSlowNet(t)
	ctx, cancel := context.WithCancel(t.Context())
	given, other := c.later(ctx, plain("given")), c.later(suites.Limited(c), plain("other"))
	cancel()
	if r := <-given; !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
	c.proxy.Heal()
	c.granted(other)
	suites.Granted(t, c.other, plain("given"))
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
				s.hints.setContended(req.Name, true)
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
			suites.Granted(t, other, plain("given"))
			suites.Eventually(t, "requests are still recorded as under way", func() bool {
				s.late.mu.Lock()
				defer s.late.mu.Unlock()
				return len(s.late.calls) == 0
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
		if r := <-one; !errors.Is(r.Err, store.ErrClosed) {
			t.Errorf("%+v", r)
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
	suites.Eventually(t, "the lock is not taken", func() bool { return c.server.Must("EXISTS", Prefix+"lock:"+last.Name) == int64(1) })
	cancel()
	for i := range given {
		if r := <-given[i]; !errors.Is(r.Err, context.Canceled) {
			t.Fatalf("%+v", r)
		}
	}
	for i := range reqs {
		done := make(chan result, 1)
		again = append(again, done)
		go func() {
			answer, err := c.s.Acquire(suites.Limited(c), reqs[i])
			done <- result{Value: answer, Err: err}
		}()
	}
	c.proxy.Heal()
	c.granted(again...)
	suites.Eventually(t, "calls are in flight", func() bool { return c.s.batch.Len() == 0 })
	for _, req := range reqs {
		suites.Release(t, c.s, req)
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

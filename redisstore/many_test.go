package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/rediscore"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A crowd is calls that go together because the network is slow.
type crowd struct {
	*testing.T
	server   *servers.Redis
	proxy    *faultproxy.Proxy
	s, other *Store
	first    []<-chan result // each for itself
}

type result struct {
	store.Answer
	err error
}

func gather(t *testing.T) *crowd {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	c := &crowd{T: t, server: server, proxy: faultproxy.Start(t, server.Addr())}
	c.s, c.other = openQuick(t, "redis://"+c.proxy.Addr()), openQuick(t, "redis://"+server.Addr())
	t.Cleanup(func() { c.s.Close() })
	t.Cleanup(func() { c.other.Close() })
	rediscore.HoldBatches(c.s.Store)
	for _, s := range []*Store{c.s, c.other} { // asks for the clock, and makes take.lua known
		for i := range 2 {
			req := plain(fmt.Sprint("warm", i))
			c.must(s, req)
			if err := s.Release(c.ctx(), req.Name, req.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.hold()
	many := []<-chan result{c.later(c.ctx(), plain("many1")), c.later(c.ctx(), plain("many2"))}
	c.proxy.Heal()
	c.granted(append(c.first, many...)...) // makes many.lua known
	c.first = nil
	c.hold()
	return c
}

// hold makes the network slow, with as many on their way as go each for itself.
func (c *crowd) hold() {
	servers.Poll(c, 10*time.Second, func() error { // a call returns before it is counted as done
		if n := rediscore.InFlight(c.s.Store); n > 0 {
			return fmt.Errorf("%d calls in flight", n)
		}
		return nil
	})
	c.proxy.ToServer.Hold()
	for i := range rediscore.MaxInFlight {
		c.first = append(c.first, c.later(c.ctx(), plain(fmt.Sprint("first", i, store.NewID()))))
	}
}

func (c *crowd) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	c.Cleanup(cancel)
	return ctx
}

func plain(name string) store.Request {
	return store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: time.Minute, Tokens: 1, Owner: "me"}
}

func (c *crowd) must(s *Store, req store.Request) store.Answer {
	c.Helper()
	answer, err := s.Acquire(c.ctx(), req)
	if err != nil || !answer.Granted() {
		c.Fatalf("%+v, %v", answer.Refusal, err)
	}
	return answer
}

// later asks, and returns when the call is on its way, or waits.
func (c *crowd) later(ctx context.Context, req store.Request) <-chan result {
	c.Helper()
	n, done := rediscore.InFlight(c.s.Store), make(chan result, 1)
	go func() {
		answer, err := c.s.Acquire(ctx, req)
		done <- result{answer, err}
	}()
	servers.Poll(c, 10*time.Second, func() error {
		if rediscore.InFlight(c.s.Store) <= n {
			return errors.New("it has not started")
		}
		return nil
	})
	return done
}

func (c *crowd) granted(all ...<-chan result) (tokens []int64) {
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

// free wants a name to be free, and leaves it so.
func (c *crowd) free(name string) error {
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

func TestWhoComesWhileOthersAreOnTheirWayGoTogether(t *testing.T) {
	c := gather(t)
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
	if got["incrby"] != rediscore.MaxInFlight+1 || got["rpush"] != rediscore.MaxInFlight+n || got["evalsha"] != rediscore.MaxInFlight+1 {
		t.Errorf("commands: %v", got)
	}
	// They are known as they are, and are given back.
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

// Taken and given back by many at once, and by two on one name each.
func TestManyAtOnceLeaveNothing(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	s := openQuick(t, "redis://"+server.Addr())
	defer s.Close()
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

func TestOneThatIsHeldIsRefusedAlone(t *testing.T) {
	c := gather(t)
	holder := plain("held")
	c.must(c.other, holder)
	a, held, b := c.later(c.ctx(), plain("a")), c.later(c.ctx(), plain("held")), c.later(c.ctx(), plain("b"))
	c.proxy.Heal()
	c.granted(a, b)
	r := <-held
	if r.err != nil || r.Granted() || r.Refusal.Holders[0].ID != holder.ID || r.Refusal.Holders[0].Left <= 0 {
		t.Errorf("%+v, %v", r.Answer, r.err)
	}
	if n := c.server.Must("LLEN", rediscore.Prefix+"lock:held"); n != int64(1) {
		t.Errorf("%v records of one holder", n)
	}
	if err := c.other.Release(c.ctx(), "held", holder.ID, store.Keep{}); err != nil {
		t.Error(err)
	}
	if err := c.free("held"); err != nil {
		t.Error(err)
	}
}

// The counter is lost with the rest, or falls behind the clock: tokens grow all the same.
func TestTokensOfManyGrowWhateverHappensToTheCounter(t *testing.T) {
	for what, change := range map[string]func(c *crowd){
		"it is lost":     func(c *crowd) { c.server.Must("DEL", "holdfast:token") },
		"it is far back": func(c *crowd) { c.server.Must("SET", "holdfast:token", "1000000000000001") },
	} {
		t.Run(what, func(t *testing.T) {
			c := gather(t)
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

func TestWhoGivesUpBeforeItsTurnIsNotSent(t *testing.T) {
	c := gather(t)
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

// What it sends to undo it might come before the call itself: so that is given back as well
// when its answer comes.
func TestWhoGivesUpOnItsWayKeepsNothing(t *testing.T) {
	c := gather(t)
	ctx, cancel := context.WithCancel(t.Context())
	req := plain("given")
	given, other := c.later(ctx, req), c.later(c.ctx(), plain("other"))
	arrived := c.proxy.HoldRepliesAfter(func(b []byte) bool { return bytes.Contains(b, []byte(req.ID.String())) })
	c.proxy.ToServer.Heal()
	<-arrived
	servers.Poll(t, 10*time.Second, func() error {
		page, err := c.other.List(c.ctx(), store.Query{Name: "given"})
		if err == nil && len(page.Locks) == 0 {
			err = errors.New("it is not taken")
		}
		return err
	})
	cancel()
	if r := <-given; !errors.Is(r.err, context.Canceled) {
		t.Errorf("%+v, %v", r.Answer, r.err)
	}
	c.proxy.Heal()
	c.granted(other)
	servers.Poll(t, 10*time.Second, func() error { return c.free("given") })
}

func TestCloseEndsThoseWhoWaitForTheirTurn(t *testing.T) {
	c := gather(t)
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

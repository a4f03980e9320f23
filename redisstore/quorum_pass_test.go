package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/rediscore"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A relay is a number of clients, each with a quorum store of its own, that take turns with one name.
type relay struct {
	t       *testing.T
	stores  []*quorum.Store
	clients []*holdfast.Client

	holders atomic.Int32
	token   atomic.Int64
	grants  atomic.Int64
	last    atomic.Int64 // when the name was granted last, in ns since begin
	gap     atomic.Int64 // longest time without a grant
	begin   time.Time
}

const relayName = "n"

// startRelay opens clients of a quorum. If without is set, the first one does not pass votes on.
func startRelay(t *testing.T, nodes []*servers.Redis, clients int, query string, without bool) *relay {
	t.Helper()
	r := &relay{t: t, begin: time.Now()}
	for i := range clients {
		var s store.Store
		var err error
		if without && i == 0 {
			s, err = openWithoutPassing(nodes)
		} else {
			s, err = store.Open(t.Context(), "quorum+redis://"+quorumHosts(nodes)+"?restart=off"+query)
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(s, holdfast.WithOwner(fmt.Sprint("client", i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(); s.Close() })
		r.stores, r.clients = append(r.stores, s.(*quorum.Store)), append(r.clients, c)
	}
	return r
}

// openWithoutPassing returns a quorum whose nodes do not implement quorum.Passer.
func openWithoutPassing(nodes []*servers.Redis) (store.Store, error) {
	var all []quorum.Node
	for _, n := range nodes {
		u, err := store.ParseURL("redis://" + n.Addr())
		if err != nil {
			return nil, err
		}
		s := &quorumNode{url: u, config: rediscore.Config{Counters: rediscore.QuorumCounters}}
		all = append(all, quorum.Node{Name: n.Addr(), Store: struct{ store.Store }{s}})
	}
	return quorum.New(context.Background(), all, quorum.Options{RestartDelay: -1})
}

// run lets all clients take turns until ctx ends. Each waits for at most the time that patience
// returns for its number, and holds the name for the time that hold returns.
func (r *relay) run(ctx context.Context, patience, hold func(client int) time.Duration) {
	var wg sync.WaitGroup
	r.last.Store(int64(time.Since(r.begin)))
	for i, c := range r.clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				wait, cancel := context.WithTimeout(ctx, patience(i))
				lease, err := c.Lock(wait, relayName)
				cancel()
				if err != nil {
					continue
				}
				r.granted(lease)
				time.Sleep(hold(i))
				r.holders.Add(-1)
				lease.Unlock(context.Background())
			}
		})
	}
	wg.Wait()
	r.pause()
}

func (r *relay) pause() {
	now := int64(time.Since(r.begin))
	if gap := now - r.last.Swap(now); gap > r.gap.Load() {
		r.gap.Store(gap)
	}
}

func (r *relay) granted(lease *holdfast.Lease) {
	if n := r.holders.Add(1); n > 1 {
		r.t.Errorf("%d holders", n)
	}
	if before := r.token.Swap(lease.Token()); before >= lease.Token() {
		r.t.Errorf("token %d after %d", lease.Token(), before)
	}
	r.grants.Add(1)
	r.pause()
}

func (r *relay) passes() (n uint64) {
	for _, s := range r.stores {
		n += s.Passes()
	}
	return n
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// nothingLeft waits until no node has a record of the name.
func nothingLeft(t *testing.T, nodes []*servers.Redis, within time.Duration) {
	t.Helper()
	servers.Poll(t, within, func() error {
		if keys := leftovers(nodes); len(keys) > 0 {
			return fmt.Errorf("left over: %v", keys)
		}
		return nil
	})
}

func TestVotesArePassedOnFromHolderToHolder(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			nodes := servers.StartRedisNodes(t, n, servers.RedisOptions{InMemory: true})
			r := startRelay(t, nodes, 12, "", false)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			r.run(ctx, always(time.Minute), always(0))
			grants, passes := r.grants.Load(), r.passes()
			t.Logf("%d grants, %d passed on", grants, passes)
			if passes < uint64(grants)/2 {
				t.Errorf("%d of %d leases were passed on", passes, grants)
			}
			nothingLeft(t, nodes, 4*time.Second)
		})
	}
}

func TestClientsThatDoNotPassVotesOnTakeTheirTurns(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{InMemory: true})
	r := startRelay(t, nodes, 6, "", true)
	var without atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r.run(ctx, always(time.Minute), always(0))
	for _, n := range r.stores[0].Rounds() {
		without.Add(int64(n))
	}
	t.Logf("%d grants, %d of them without passing, %d passed on", r.grants.Load(), without.Load(), r.passes())
	if r.stores[0].Passes() > 0 || r.passes() == 0 || without.Load() < r.grants.Load()/20 {
		t.Errorf("%d of %d grants to the client that does not pass votes on, %d passed on", without.Load(), r.grants.Load(), r.passes())
	}
}

// A waiter may give up at the moment when it gets the votes. The other clients do not wait until the
// votes end.
func TestWaitersThatGiveUpDoNotBlockANameWhoseVotesArePassedOn(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{InMemory: true})
	r := startRelay(t, nodes, 12, "", false)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var short atomic.Int64
	r.run(ctx, func(client int) time.Duration {
		if client < 4 {
			return time.Minute
		}
		short.Add(1)
		return rand.N(5 * time.Millisecond)
	}, always(0))
	t.Logf("%d grants, %d passed on, %d waits were short, longest pause %v", r.grants.Load(), r.passes(), short.Load(), time.Duration(r.gap.Load()))
	if r.passes() == 0 || short.Load() == 0 || time.Duration(r.gap.Load()) > time.Second {
		t.Errorf("%d passed on, %d waits were short, longest pause %v", r.passes(), short.Load(), time.Duration(r.gap.Load()))
	}
	nothingLeft(t, nodes, 8*time.Second)
}

func TestOtherClientsGoOnAfterTheBellOfPassedVotesIsKilled(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 5, servers.RedisOptions{InMemory: true})
	r := startRelay(t, nodes, 8, "", false)
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx, always(time.Minute), always(0))
	}()
	time.Sleep(time.Second)
	var bell *servers.Redis
	for _, n := range nodes {
		if keys := keysOf([]*servers.Redis{n}, rediscore.Prefix+"queue:"+relayName); len(keys) > 0 {
			bell = n
		}
	}
	if bell == nil {
		t.Fatal("no node has a queue")
	}
	passes := r.passes()
	bell.Kill()
	time.Sleep(4 * time.Second)
	killed := r.grants.Load()
	<-done
	t.Logf("%d passed on before, %d grants, longest pause %v", passes, r.grants.Load(), time.Duration(r.gap.Load()))
	if passes == 0 || r.grants.Load() == killed {
		t.Errorf("%d passed on before, no grant after %d", passes, killed)
	}
	if gap := time.Duration(r.gap.Load()); gap > 4*time.Second {
		t.Errorf("no grant for %v", gap)
	}
}

// A holder that keeps the name has votes under its own identity after 10 ms.
func TestHolderThatCouldPassItsVotesOnIsListedAndBroken(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 5, servers.RedisOptions{InMemory: true})
	r := startRelay(t, nodes, 6, "", false)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var listed, broken atomic.Int64
	for i, c := range r.clients[1:] {
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := c.Lock(ctx, relayName)
				if err != nil {
					continue
				}
				if rand.N(3) > 0 { // most holders pass their votes on
					r.granted(lease)
					r.holders.Add(-1)
					lease.Unlock(context.Background())
					continue
				}
				r.granted(lease)
				time.Sleep(40 * time.Millisecond)
				lock, err := r.clients[0].Inspect(ctx, relayName)
				// On a slow machine it takes longer. Meanwhile the listed token may be that of an earlier holder.
				for end := time.Now().Add(time.Second); err == nil && len(lock.Holders) == 1 && lock.Holders[0].Token < lease.Token() && time.Now().Before(end); {
					time.Sleep(5 * time.Millisecond)
					lock, err = r.clients[0].Inspect(ctx, relayName)
				}
				if err == nil && len(lock.Holders) == 1 && lock.Holders[0].Owner == fmt.Sprint("client", i+1) && lock.Holders[0].Token == lease.Token() {
					listed.Add(1)
				} else if ctx.Err() == nil {
					t.Errorf("%+v, %v, want client%d with token %d", lock.Holders, err, i+1, lease.Token())
				}
				r.holders.Add(-1)
				if rand.N(4) == 0 && ctx.Err() == nil && len(lock.Holders) == 1 {
					if err := r.clients[0].Break(ctx, relayName, lock.Holders[0].ID); err != nil && ctx.Err() == nil {
						t.Errorf("Break: %v", err)
					}
					if err := lease.Unlock(context.Background()); !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
						t.Errorf("Unlock of a broken lease: %v", err)
					}
					broken.Add(1)
					continue
				}
				if err := lease.Unlock(context.Background()); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	time.Sleep(3 * time.Second)
	cancel()
	wg.Wait()
	t.Logf("%d grants, %d passed on, %d listed, %d broken", r.grants.Load(), r.passes(), listed.Load(), broken.Load())
	if r.passes() == 0 || listed.Load() == 0 || broken.Load() == 0 {
		t.Errorf("%d passed on, %d listed, %d broken", r.passes(), listed.Load(), broken.Load())
	}
	nothingLeft(t, nodes, 8*time.Second)
	if keys := leftovers(nodes); len(keys) > 0 {
		t.Error(strings.Join(keys, "\n"))
	}
}

// The nodes of a quorum pass a note on to the first waiter, under exactly these conditions.
func TestNodesPassNotesOn(t *testing.T) {
	node := servers.StartRedisNodes(t, 1, servers.RedisOptions{InMemory: true})[0]
	open := func() *quorumNode {
		u, err := store.ParseURL("redis://" + node.Addr())
		if err != nil {
			t.Fatal(err)
		}
		return &quorumNode{url: u, config: rediscore.Config{Counters: rediscore.QuorumCounters}}
	}
	a, b := open(), open()
	shared := memstore.New()
	for name, nodes := range map[string][2]passer{"redis": {a, b}, "memory": {shared, shared}} {
		t.Run(name, func(t *testing.T) { testPasser(t, nodes[0], nodes[1]) })
	}
	a.Close()
	b.Close()
}

type passer interface {
	store.Store
	quorum.Passer
}

func testPasser(t *testing.T, n, other passer) {
	ctx := t.Context()
	ask := func(n passer, name string, id store.ID) (store.Answer, string, time.Duration) {
		t.Helper()
		answer, note, age, err := n.AcquireNoted(ctx, store.Request{
			Name: name, ID: id, Mode: store.Exclusive, Weight: 1, TTL: 20 * time.Second, Tokens: 1, Queue: true, Owner: "o", Meta: "m",
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer, note, age
	}
	pass := func(name string, id store.ID, token int64, want bool, wantErr error) {
		t.Helper()
		passed, err := n.Pass(ctx, name, id, token, 1<<52, "note of "+name)
		if passed != want || !errors.Is(err, wantErr) {
			t.Fatalf("Pass: %v, %v, want %v, %v", passed, err, want, wantErr)
		}
	}
	release := func(name string, id store.ID) {
		t.Helper()
		if err := n.Release(ctx, name, id, store.Keep{}); err != nil {
			t.Fatal(err)
		}
	}

	// A waiter that asked before the holder was granted the name gets the note, once, whatever
	// copies of the message arrive.
	h1, h2, w := store.NewID(), store.NewID(), store.NewID()
	first, _, _ := ask(n, "x", h1)
	ask(n, "x", h2)
	ask(n, "x", w)
	pass("x", h1, first.Token, false, nil) // both asked after h1 was granted the name
	release("x", h1)
	second, _, _ := ask(n, "x", h2)
	if !second.Granted() {
		t.Fatal("the first waiter is not granted the name")
	}
	pass("x", h1, first.Token, false, store.ErrNotHeld)
	pass("x", h2, first.Token, false, nil) // an old token
	pass("x", h2, second.Token, true, nil)
	pass("x", h2, second.Token, false, store.ErrNotHeld)
	if err := n.Wait(ctx, "x", w); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeated request too
		answer, note, age := ask(n, "x", w)
		if !answer.Granted() || note != "note of x" || answer.Token <= 1<<52 || age <= 0 || age > 10*time.Second {
			t.Fatalf("%+v, %q, %v, want the note", answer, note, age)
		}
	}
	if note, err := n.LeaveNoted(ctx, "x", w); note != "note of x" || err != nil {
		t.Errorf("LeaveNoted: %q, %v", note, err)
	}
	if note, err := n.LeaveNoted(ctx, "x", w); note != "" || err != nil {
		t.Errorf("LeaveNoted again: %q, %v", note, err)
	}

	// A waiter that asks again while the holder has the name is not passed to, and neither is one
	// that takes no notes.
	h1, h2, w = store.NewID(), store.NewID(), store.NewID()
	ask(n, "y", h1)
	ask(n, "y", h2)
	ask(n, "y", w)
	release("y", h1)
	second, _, _ = ask(n, "y", h2)
	ask(n, "y", w)
	pass("y", h2, second.Token, false, nil)
	release("y", h2)
	answer, note, _ := ask(n, "y", w)
	if !answer.Granted() || note != "" {
		t.Errorf("%+v, %q, want a grant without a note", answer, note)
	}
	plain := store.NewID()
	if a, err := n.Acquire(ctx, store.Request{Name: "y", ID: plain, Mode: store.Exclusive, Weight: 1, TTL: 20 * time.Second, Tokens: 1, Queue: true}); err != nil || a.Granted() {
		t.Fatal(a, err)
	}
	pass("y", w, answer.Token, false, nil)
	release("y", w)

	// A grant gets another identity, with tokens that are not below the given ones.
	from := store.NewID()
	to := store.Request{Name: "z", ID: store.NewID(), TTL: 10 * time.Second, Tokens: 1, Owner: "new", Meta: "why"}
	if renamed, err := n.Rename(ctx, from, to, 5); renamed || err != nil {
		t.Errorf("Rename of nothing: %v, %v", renamed, err)
	}
	granted, _, _ := ask(n, "z", from)
	for range 2 {
		if renamed, err := n.Rename(ctx, from, to, granted.Token+7); !renamed || err != nil {
			t.Errorf("Rename: %v, %v", renamed, err)
		}
	}
	page, err := other.List(ctx, store.Query{Name: "z"})
	if err != nil || len(page.Locks) != 1 || len(page.Locks[0].Holders) != 1 {
		t.Fatal(page, err)
	}
	if h := page.Locks[0].Holders[0]; h.ID != to.ID || h.Owner != "new" || h.Meta != "why" || h.Token != granted.Token+7 || h.Left > to.TTL {
		t.Errorf("%+v after Rename", h)
	}
	if err := other.Release(ctx, "z", from, store.Keep{}); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("Release of the old identity: %v", err)
	}
	if err := other.Release(ctx, "z", to.ID, store.Keep{}); err != nil {
		t.Error(err)
	}
	if next, _, _ := ask(n, "z", store.NewID()); next.Token <= granted.Token+7 {
		t.Errorf("token %d after %d", next.Token, granted.Token+7)
	}
}

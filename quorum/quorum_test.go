package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A fault is called before or after each call to a node. It may block, and may make the call fail.
type fault func(ctx context.Context, call string) error

// A gate is a node that a test can disturb. It may belong to several quorums, none of which closes it.
type gate struct {
	wire
	features store.Features // that it has beside those of its store
	timeout  time.Duration  // of its calls, if it bounds them itself

	mu            sync.Mutex
	before, after fault
	calls         map[string]int
}

func (g *gate) set(before, after fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

func setAll[N interface{ set(before, after fault) }](nodes []N, before, after fault) {
	for _, n := range nodes {
		n.set(before, after)
	}
}

// hangs makes all calls block until the test ends, whatever their contexts do.
func (g *gate) hangs(t *testing.T) {
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	g.set(hang(forever), nil)
}

// count returns how often some methods were called, or all of them if none is named.
func (g *gate) count(calls ...string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for call, k := range g.calls {
		if len(calls) == 0 || slices.Contains(calls, call) {
			n += k
		}
	}
	return n
}

func (g *gate) pass(ctx context.Context, call string, do func(s store.Store) error) error {
	g.mu.Lock()
	g.calls[call]++
	before, after := g.before, g.after
	g.mu.Unlock()
	if before != nil {
		if err := before(ctx, call); err != nil {
			return err
		}
	}
	if err := do(g.Store); err != nil || after == nil {
		return err
	}
	return after(ctx, call)
}

func (g *gate) Capabilities() store.Capabilities {
	c := g.Store.Capabilities()
	c.Features |= g.features
	c.Timeout = g.timeout
	return c
}

func (*gate) Close() error { return nil }

func newGates(n int) (all []*gate) {
	for range n {
		g := &gate{calls: make(map[string]int)}
		g.Store, g.send = memstore.New(), g.pass
		all = append(all, g)
	}
	return all
}

// named returns nodes of a quorum with the names node0, node1 and so on.
func named[S store.Store](all []S) (nodes []quorum.Node) {
	for i, s := range all {
		nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: s})
	}
	return nodes
}

func gates(t *testing.T, n int, opts quorum.Options) ([]*gate, *quorum.Store) {
	t.Helper()
	all := newGates(n)
	return all, openQuorum(t, named(all), opts)
}

func withGates(t *testing.T, n int, opts quorum.Options, test func(t *testing.T, nodes []*gate, q *quorum.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, n, opts)
		test(t, nodes, q)
	})
}

// nodeTests are tests with some nodes and a quorum of them, each in a bubble of its own.
type nodeTests map[string]func(t *testing.T, nodes []*gate, q *quorum.Store)

// run runs the tests with each of these numbers of nodes.
func (all nodeTests) run(t *testing.T, numbers ...int) {
	for name, test := range all {
		for _, n := range numbers {
			run(t, fmt.Sprintf("%s, %d nodes", name, n), func(t *testing.T) {
				nodes, q := gates(t, n, quorum.Options{})
				test(t, nodes, q)
			})
		}
	}
}

func run(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	if f(); time.Since(begin) > limit {
		t.Errorf("took %v, want at most %v", time.Since(begin), limit)
	}
}

// hang blocks until the channel is closed, whatever the context does.
func hang(until <-chan struct{}) fault {
	return func(context.Context, string) error {
		<-until
		return nil
	}
}

// lose blocks until the call ends, like a reply that never arrives.
func lose(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

var errDown = errors.New("connection reset")

func down(context.Context, string) error { return errDown }

func slow(d time.Duration) fault {
	return func(context.Context, string) error { time.Sleep(d); return nil }
}

func only(f fault, calls ...string) fault {
	return func(ctx context.Context, call string) error {
		if slices.Contains(calls, call) {
			return f(ctx, call)
		}
		return nil
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func request(name string) store.Request {
	return store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: 30 * time.Second, Tokens: 1}
}

func queued(name string) store.Request {
	r := request(name)
	r.Queue = true
	return r
}

var mustAcquire, mustRefuse, mustRelease = suites.Granted, suites.Refused, suites.Release

// renew renews a lease, for further tokens if the request asks for more than one.
func renew(t *testing.T, q *quorum.Store, req store.Request, want store.Status) store.Renewed {
	t.Helper()
	grant := store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: store.Exclusive, Tokens: req.Tokens / 2}
	out, err := q.Renew(t.Context(), []store.Renewal{grant})
	if err != nil || out[0].Status != want {
		t.Fatalf("Renew: %+v, %v, want %v", out, err, want)
	}
	synctest.Wait()
	return out[0]
}

// lease returns a request that all nodes have granted.
func lease(t *testing.T, q *quorum.Store) store.Request {
	t.Helper()
	req := request("n")
	mustAcquire(t, q, req)
	synctest.Wait()
	return req
}

// wantKept ends a lease and keeps its name closed, which must succeed or fail.
func wantKept(t *testing.T, q *quorum.Store, req store.Request, keep store.Keep, want bool) {
	t.Helper()
	if err := q.Release(t.Context(), req.Name, req.ID, keep); (err == nil) != want {
		t.Fatalf("Release: %v, want success: %t", err, want)
	}
}

// breakAt lets another client break a lease at some nodes.
func breakAt(t *testing.T, req store.Request, nodes []*gate) {
	t.Helper()
	for _, g := range nodes {
		must(t, g.Break(t.Context(), req.Name, req.ID))
	}
}

func mustFail(t *testing.T, q *quorum.Store, req store.Request) {
	t.Helper()
	if a, err := q.Acquire(t.Context(), req); err == nil {
		t.Fatalf("Acquire: %+v, want an error", a)
	}
}

func mustRenew(t *testing.T, q *quorum.Store, req store.Request) store.Renewed {
	t.Helper()
	return renew(t, q, req, store.Extended)
}

// votes returns how many nodes have a grant of the identity, and how many have anything of it.
func votes(t *testing.T, nodes []*gate, req store.Request) (granted, any int) {
	t.Helper()
	waiting := 0
	for _, g := range nodes {
		page, err := g.Store.List(context.Background(), store.Query{Name: req.Name})
		must(t, err)
		for _, l := range page.Locks {
			switch {
			case slices.ContainsFunc(l.Holders, func(h store.Holder) bool { return h.ID == req.ID }):
				granted++
			case slices.ContainsFunc(l.Waiters, func(w store.Waiter) bool { return w.ID == req.ID }):
				waiting++
			}
		}
	}
	return granted, granted + waiting
}

func wantVotes(t *testing.T, nodes []*gate, req store.Request, want int) {
	t.Helper()
	if n, _ := votes(t, nodes, req); n != want {
		t.Errorf("%d of %d nodes have the vote, want %d", n, len(nodes), want)
	}
}

// wantNothing fails if the store remembers an identity or repeats a message, or if a node has anything.
func wantNothing(t *testing.T, nodes []*gate, q *quorum.Store) {
	t.Helper()
	if sessions, _, undoings := q.Remembered(); sessions+undoings > 0 {
		t.Errorf("%d identities are remembered, %d messages are repeated", sessions, undoings)
	}
	for i, g := range nodes {
		if page, err := g.Store.List(context.Background(), store.Query{}); err != nil || len(page.Locks) > 0 {
			t.Errorf("node %d has %d names left, %v", i, len(page.Locks), err)
		}
	}
}

func TestNewRejectsBadInput(t *testing.T) {
	good := named([]*memstore.Store{memstore.New(), memstore.New(), memstore.New()})
	twice := quorum.Node{Name: "also", Store: good[0].Store}
	servers := hosts(3)
	servers[1].restart("run0", time.Hour)
	for want, in := range map[string]struct {
		nodes []quorum.Node
		opts  quorum.Options
	}{
		"2 nodes":         {nodes: good[:2]},
		"16 nodes":        {nodes: make([]quorum.Node, 16)},
		"node0 and node0": {nodes: []quorum.Node{good[0], good[1], {Name: "node0", Store: good[2].Store}}},
		"the same server": {nodes: named(servers)},
		"also and node0":  {nodes: []quorum.Node{good[0], good[1], twice}},
		"timeout -1ns":    {nodes: good, opts: quorum.Options{Timeout: -1}},
		"restart delay":   {nodes: good, opts: quorum.Options{RestartDelay: time.Millisecond}},
	} {
		_, err := quorum.New(t.Context(), in.nodes, in.opts)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrInvalid with %q", err, want)
		}
	}
	mustAcquire(t, openQuorum(t, good, quorum.Options{}), request("n")) // nothing was closed
}

func TestRequestsThatCannotBeGrantedAreRefusedBeforeANodeIsAsked(t *testing.T) {
	nodes, q := gates(t, 3, quorum.Options{})
	shared, permits, last := request("n"), request("n"), request("n")
	shared.Mode, permits.Mode, permits.Limit, last.Floor = store.Shared, store.Permits, 2, store.MaxToken
	for i, req := range []store.Request{shared, permits, last} {
		want := []error{store.ErrUnsupported, store.ErrUnsupported, store.ErrInvalid}[i]
		if _, err := q.Acquire(t.Context(), req); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", req, err, want)
		}
	}
	if _, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: store.NewID(), TTL: time.Minute, Mode: store.Shared}}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("step down: %v, want ErrUnsupported", err)
	}
	for i, g := range nodes {
		if n := g.count(); n > 0 {
			t.Errorf("node %d got %d calls", i, n)
		}
	}
}

func TestCallsReturnWhenAMajorityHasAnswered(t *testing.T) {
	calls := map[string]func(t *testing.T, q *quorum.Store, req store.Request){
		"Acquire": func(t *testing.T, q *quorum.Store, req store.Request) {
			req.Name, req.Floor = "other", 2*far
			mustAcquire(t, q, req)
		},
		"Acquire of a name that is held": func(t *testing.T, q *quorum.Store, _ store.Request) { mustRefuse(t, q, request("n")) },
		"Renew":                          func(t *testing.T, q *quorum.Store, req store.Request) { mustRenew(t, q, req) },
		"Release":                        func(t *testing.T, q *quorum.Store, req store.Request) { mustRelease(t, q, req) },
		"Leave":                          func(t *testing.T, q *quorum.Store, req store.Request) { suites.Leave(t, q, req) },
	}
	for name, call := range calls {
		for hung := range 3 {
			run(t, fmt.Sprintf("%s, node %d hangs", name, hung), func(t *testing.T) {
				nodes := hosts(3)
				q, req := openQuorum(t, named(nodes), quorum.Options{}), request("n")
				req.Floor = far // so that the nodes agree on a token
				mustAcquire(t, q, req)
				synctest.Wait()
				nodes[hung].hangs(t)
				req.TTL *= 2 // the nodes are told this TTL before it is used
				within(t, 0, func() { call(t, q, req) })
			})
		}
	}
}

func TestRestartedNodeIsRepairedUnlessTheLeaseIsGone(t *testing.T) {
	withGates(t, 3, quorum.Options{}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		req := request("n")
		a := mustAcquire(t, q, req)
		synctest.Wait()
		forget := func(g *gate) { g.Store.Leave(t.Context(), "n", req.ID) }
		for i := range 10 { // as long as it is renewed
			time.Sleep(req.TTL / 3)
			forget(nodes[i%3])
			mustRenew(t, q, req)
			wantVotes(t, nodes, req, 3)
		}
		forget(nodes[0]) // two nodes lose their data, and one of them answers again before the other one
		forget(nodes[1])
		nodes[1].set(down, nil)
		for _, want := range []store.Status{store.Unknown, store.Gone} {
			renew(t, q, req, want)
			time.Sleep(2 * time.Second)
			wantVotes(t, nodes[:2], req, 0)
			nodes[1].set(nil, nil)
		}
		wantVotes(t, nodes, req, 0)
		if b := mustAcquire(t, q, request("n")); b.Token <= a.Token {
			t.Errorf("token %d after %d", b.Token, a.Token)
		}
	})
}

func TestQuorum(t *testing.T) {
	nodeTests{
		"a lease is valid no longer than its nodes granted": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			for _, g := range nodes {
				g.Store = brief{g.Store}
			}
			req := request("n")
			if a := mustAcquire(t, q, req); a.TTL > req.TTL/4 {
				t.Errorf("valid for %v, the nodes granted %v", a.TTL, req.TTL/4)
			}
			if out := mustRenew(t, q, req); out.TTL > req.TTL/4 {
				t.Errorf("renewed for %v, the nodes granted %v", out.TTL, req.TTL/4)
			}
		},
		"too few answers fail after the timeout and name the nodes": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			nodes[0].hangs(t) // also ignores its context
			nodes[2].set(down, nil)
			begin := time.Now()
			_, err := q.Acquire(t.Context(), request("n"))
			var failed *quorum.NodesError
			if !errors.As(err, &failed) || failed.Confirmed != 1 || failed.Needed != 2 {
				t.Fatalf("Acquire: %v, want a NodesError", err)
			}
			for _, want := range []string{"node0: no reply", "node2: connection reset"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not contain %q", err, want)
				}
			}
			if took := time.Since(begin); took != quorum.DefaultTimeout {
				t.Errorf("failed after %v", took)
			}
		},
		"a lease that is over is neither renewed nor repaired": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			nodes[0].set(down, nil)
			req := request("n")
			a := mustAcquire(t, q, req)
			time.Sleep(a.TTL + a.TTL/100) // nodes keep it for longer, in case their clocks run faster by one percent
			wantVotes(t, nodes[1:], req, 2)
			nodes[0].set(nil, nil)
			renew(t, q, req, store.Gone)
			wantVotes(t, nodes[:1], req, 0)
		},
		// A request under the identity of a lease that is over fails, and its votes arrive late. The lease must not
		// be renewed with them: another lease with a higher token has been granted since.
		"a lease that is over is not renewed after a request that failed": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req, next := request("n"), request("n")
			mustAcquire(t, q, req)
			time.Sleep(req.TTL + time.Second)
			mustAcquire(t, q, next)
			mustRelease(t, q, next)
			synctest.Wait()
			nodes[0].set(down, nil)
			nodes[1].set(nil, only(lose, "Acquire"))
			mustFail(t, q, req)
			setAll(nodes, nil, nil)
			time.Sleep(2 * time.Second)
			renew(t, q, req, store.Gone)
		},
		"Close does not wait for messages that are repeated": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			for i := range 100 {
				req := request(fmt.Sprint(i))
				nodes[0].set(nil, nil)
				mustAcquire(t, q, req)
				synctest.Wait()
				nodes[0].set(down, nil)
				mustRelease(t, q, req)
			}
			time.Sleep(10 * time.Second)
			within(t, 600*time.Millisecond, func() { must(t, q.Close()) })
		},
		// A node that needs more than half of the time limit for each call is slow, not down.
		"slow nodes are not skipped": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			setAll(nodes, slow(quorum.DefaultTimeout*3/5), nil)
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 37 * time.Millisecond) // some calls are in flight at any time
					for range 5 {
						suites.TokenOf(t, q, fmt.Sprint(i))
					}
				})
			}
			all.Wait()
		},
	}.run(t, 3)
}

// What is sent while a node hangs is one call at a time. Only that has to be undone.
func TestNodeThatHangsIsSkippedAndCollectsFewCalls(t *testing.T) {
	for name, hung := range map[string]fault{
		"calls never end":                 nil,
		"the store bounds its calls":      func(context.Context, string) error { time.Sleep(quorum.DefaultTimeout); return errDown },
		"calls end with the quorum's own": lose,
		"it cannot be reached":            undialed,
	} {
		run(t, name, func(t *testing.T) {
			nodes, q := gates(t, 3, quorum.Options{})
			back := make(chan struct{})
			if nodes[1].set(hung, nil); hung == nil {
				nodes[1].set(hang(back), nil)
			}
			for i := range 1000 {
				within(t, 0, func() { suites.TokenOf(t, q, fmt.Sprint(i)) })
				time.Sleep(10 * time.Millisecond)
			}
			if n := nodes[1].count(); n > 250 { // a probe every 50 ms
				t.Errorf("%d calls to a node that hangs", n)
			}
			if n := nodes[1].count("Leave", "Release"); name == "it cannot be reached" && n > 0 {
				t.Errorf("a node that got no request got %d messages to undo one", n)
			}
			nodes[1].set(nil, nil) // calls that hang do so still
			time.Sleep(time.Minute)
			for i := range 20 { // it counts, also after idle times
				req := request(fmt.Sprint("later", i))
				mustAcquire(t, q, req)
				synctest.Wait()
				wantVotes(t, nodes, req, 3)
				mustRelease(t, q, req)
				time.Sleep(2 * time.Second)
			}
			close(back)
			time.Sleep(2 * time.Minute)
			wantNothing(t, nodes, q)
		})
	}
}

func TestCloseTakesAtMostTwoSecondsIfTheNodesHang(t *testing.T) {
	withGates(t, 3, quorum.Options{Timeout: 10 * time.Second}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		nodes[0].hangs(t)
		nodes[1].set(lose, nil)
		go q.Acquire(context.Background(), request("n"))
		synctest.Wait()
		begin := time.Now()
		if err := q.Close(); err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("%v after %v, want 2s", err, time.Since(begin))
		}
		if _, err := q.Acquire(context.Background(), request("n")); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}

func TestFailoverNeedsAllNodesToKnowWhenTheyRestarted(t *testing.T) {
	for _, test := range []struct {
		blind int // nodes that do not know it
		delay time.Duration
		want  bool
	}{{0, 0, true}, {0, time.Minute, true}, {1, 0, false}, {3, 0, false}, {0, -1, false}} {
		nodes := named(hosts(3))
		for i := range test.blind {
			nodes[i].Store = nodes[i].Store.(*server).gate
		}
		c := openQuorum(t, nodes, quorum.Options{RestartDelay: test.delay}).Capabilities()
		if got := c.Features.Has(store.FeatureFailover); got != test.want || test.delay > 0 && c.MaxTTL > test.delay {
			t.Errorf("%+v: failover %v, TTLs up to %v", test, got, c.MaxTTL)
		}
		if c.Features.Has(store.FeatureShared) || c.Features.Has(store.FeaturePermits) || c.Features.Has(store.FeatureQueue) {
			t.Errorf("%+v: features %v, want no shared mode, permits or order of arrival", test, c.Features)
		}
	}
}

// The owner of a lease closes its name without knowing that the lease was broken. No node must keep the
// name closed, whether it had given its vote or not, and also if its reply is lost.
func TestKeepOfABrokenLeaseClosesNoNode(t *testing.T) {
	for name, lost := range map[string]string{
		"the last node has not voted":                "vote",
		"the last node has voted":                    "",
		"the last node has voted, its reply is lost": "Release",
		"the others do not reply at first":           "first",
		"the others reply before the next call":      "later",
		"the last node has voted for another":        "other",
	} {
		run(t, name, func(t *testing.T) {
			nodes, q := gates(t, 3, quorum.Options{})
			if lost == "vote" {
				nodes[2].set(down, nil)
			}
			if lost == "other" {
				mustAcquire(t, nodes[2].Store, request("n"))
			}
			req := request("n")
			mustAcquire(t, q, req)
			time.Sleep(10 * time.Second) // until the vote of that node is no longer requested
			nodes[2].set(nil, only(down, lost))
			broken := nodes[:2]
			if lost == "other" {
				nodes[2].set(slow(50*time.Millisecond), nil) // it replies last
				broken = nodes[1:2]
			}
			breakAt(t, req, broken)
			if lost == "first" || lost == "later" {
				setAll(nodes[:2], down, nil)
				wantKept(t, q, req, done, false)
				setAll(nodes[:2], nil, nil)
			}
			if lost == "later" {
				time.Sleep(2 * time.Second)
			}
			if err := q.Release(t.Context(), req.Name, req.ID, done); !errors.Is(err, store.ErrNotHeld) {
				t.Errorf("error %v, want ErrNotHeld", err)
			}
			synctest.Wait()
			if _, any := votes(t, nodes, req); any > 0 {
				t.Errorf("%d nodes keep the name closed", any)
			}
		})
	}
}

func TestReplyThatComesAfterTheLeaseNeitherGrantsNorRevivesIt(t *testing.T) {
	withGates(t, 3, quorum.Options{Timeout: 2 * time.Second}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		req, late := request("n"), request("late")
		req.TTL, late.TTL = time.Second, 400*time.Millisecond
		mustAcquire(t, q, req)
		synctest.Wait()
		time.Sleep(900 * time.Millisecond)
		setAll(nodes, nil, slow(500*time.Millisecond))
		renew(t, q, req, store.Gone)
		if a, err := q.Acquire(t.Context(), late); err == nil && a.Granted() {
			t.Errorf("granted for %v, and the replies took 500 ms", a.TTL)
		}
		synctest.Wait()
		wantVotes(t, nodes, req, 0)
	})
}

// The votes of a failed attempt would block other requests for the name.
func TestFailedAttemptKeepsItsVotesUnlessTheNameIsContended(t *testing.T) {
	for _, contended := range []bool{true, false} {
		withGates(t, 5, quorum.Options{}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
			if contended {
				mustAcquire(t, nodes[0].Store, request("n"))
			}
			setAll(nodes[2:], func(context.Context, string) error { time.Sleep(time.Millisecond); return errDown }, nil)
			req := request("n")
			mustFail(t, q, req)
			synctest.Wait()
			if n, _ := votes(t, nodes[1:2], req); (n > 0) == contended {
				t.Errorf("contended %v: %d votes", contended, n)
			}
		})
	}
}

// A brief is a node that grants only a quarter of the requested TTL.
type brief struct{ store.Store }

func (b brief) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	req.TTL /= 4
	return b.Store.Acquire(ctx, req)
}

func (b brief) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	grants = slices.Clone(grants)
	for i := range grants {
		grants[i].TTL /= 4
	}
	return b.Store.Renew(ctx, grants)
}

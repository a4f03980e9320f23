package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A gate is a node that a test can disturb. Before and after each call it calls a function of the
// test. The function may block, and may make the call fail.
type gate struct {
	*memstore.Store
	mu            sync.Mutex
	before, after func(ctx context.Context, call string) error
	calls         int
}

func (g *gate) set(before, after func(ctx context.Context, call string) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

// count returns the number of calls so far.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

func (g *gate) pass(ctx context.Context, call string, do func() error) error {
	g.mu.Lock()
	g.calls++
	before, after := g.before, g.after
	g.mu.Unlock()
	if before != nil {
		if err := before(ctx, call); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if after != nil {
		return after(ctx, call)
	}
	return nil
}

func (g *gate) Acquire(ctx context.Context, req store.Request) (a store.Answer, err error) {
	err = g.pass(ctx, "Acquire", func() error { a, err = g.Store.Acquire(context.Background(), req); return err })
	return a, err
}

func (g *gate) Renew(ctx context.Context, grants []store.Renewal) (r []store.Renewed, err error) {
	err = g.pass(ctx, "Renew", func() error { r, err = g.Store.Renew(context.Background(), grants); return err })
	return r, err
}

func (g *gate) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	return g.pass(ctx, "Release", func() error { return g.Store.Release(context.Background(), name, id, keep) })
}

func (g *gate) Leave(ctx context.Context, name string, id store.ID) error {
	return g.pass(ctx, "Leave", func() error { return g.Store.Leave(context.Background(), name, id) })
}

func (g *gate) AcquireNoted(ctx context.Context, req store.Request) (a store.Answer, note string, age time.Duration, err error) {
	err = g.pass(ctx, "Acquire", func() error {
		a, note, age, err = g.Store.AcquireNoted(context.Background(), req)
		return err
	})
	return a, note, age, err
}

func (g *gate) LeaveNoted(ctx context.Context, name string, id store.ID) (note string, err error) {
	err = g.pass(ctx, "Leave", func() error { note, err = g.Store.LeaveNoted(context.Background(), name, id); return err })
	return note, err
}

func (g *gate) Pass(ctx context.Context, name string, id store.ID, token, floor int64, note string) (passed bool, err error) {
	err = g.pass(ctx, "Pass", func() error {
		passed, err = g.Store.Pass(context.Background(), name, id, token, floor, note)
		return err
	})
	return passed, err
}

func (g *gate) Rename(ctx context.Context, from store.ID, to store.Request, token int64) (renamed bool, err error) {
	err = g.pass(ctx, "Rename", func() error { renamed, err = g.Store.Rename(context.Background(), from, to, token); return err })
	return renamed, err
}

// gates returns nodes and a quorum of them.
func gates(t *testing.T, n int, opts quorum.Options) ([]*gate, *quorum.Store) {
	t.Helper()
	var all []*gate
	var nodes []quorum.Node
	for i := range n {
		g := &gate{Store: memstore.New()}
		all = append(all, g)
		nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: g})
	}
	q := openQuorum(t, nodes, opts)
	t.Cleanup(func() { q.Close() })
	return all, q
}

// hang blocks until the channel is closed, whatever the context does.
func hang(until <-chan struct{}) func(context.Context, string) error {
	return func(context.Context, string) error {
		<-until
		return nil
	}
}

// lose blocks until the call ends, like a reply that never arrives.
func lose(calls ...string) func(context.Context, string) error {
	return func(ctx context.Context, call string) error {
		for _, c := range calls {
			if c == call {
				<-ctx.Done()
				return ctx.Err()
			}
		}
		return nil
	}
}

func request(name string) store.Request {
	return store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: 30 * time.Second, Tokens: 1}
}

func mustAcquire(t *testing.T, q *quorum.Store, req store.Request) store.Answer {
	t.Helper()
	a, err := q.Acquire(t.Context(), req)
	if err != nil || !a.Granted() {
		t.Fatalf("Acquire: granted %v, %v", err == nil && a.Granted(), err)
	}
	return a
}

func holders(t *testing.T, g *gate, name string) (ids []store.ID) {
	t.Helper()
	page, err := g.List(context.Background(), store.Query{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range page.Locks {
		for _, h := range l.Holders {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

func TestNewRejectsTooFewNodesAndTheSameNodeTwice(t *testing.T) {
	a, b, c := memstore.New(), memstore.New(), memstore.New()
	for want, nodes := range map[string][]quorum.Node{
		"2 nodes":        {{Name: "a", Store: a}, {Name: "b", Store: b}},
		"16 nodes":       make([]quorum.Node, 16),
		"a and a are":    {{Name: "a", Store: a}, {Name: "b", Store: b}, {Name: "a", Store: c}},
		"a and also are": {{Name: "a", Store: a}, {Name: "b", Store: b}, {Name: "also", Store: a}},
	} {
		_, err := quorum.New(t.Context(), nodes, quorum.Options{})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrInvalid with %q", err, want)
		}
	}
}

func TestEvenNumberOfNodesIsReported(t *testing.T) {
	var reports []string
	for _, n := range []int{3, 4} {
		gates(t, n, quorum.Options{Report: func(node string, err error) { reports = append(reports, fmt.Sprint(node, ": ", err)) }})
	}
	if len(reports) != 1 || !strings.Contains(reports[0], "even") {
		t.Errorf("reports %q, want one about an even number", reports)
	}
}

func TestModesOtherThanExclusiveAreRefusedBeforeANodeIsAsked(t *testing.T) {
	nodes, q := gates(t, 3, quorum.Options{})
	for _, mode := range []store.Mode{store.Shared, store.Permits} {
		req := request("n")
		req.Mode, req.Limit = mode, 2
		if _, err := q.Acquire(t.Context(), req); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%v: %v, want ErrUnsupported", mode, err)
		}
	}
	req := request("n")
	mustAcquire(t, q, req)
	if _, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: req.ID, TTL: time.Minute, Mode: store.Shared}}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("step down: %v, want ErrUnsupported", err)
	}
	if n := nodes[0].count(); n > 1 {
		t.Errorf("%d calls, want the one Acquire", n)
	}
}

func TestCallsReturnWhenAMajorityHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{})
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) })
		nodes[1].set(hang(forever), nil)
		nodes[3].set(hang(forever), nil)
		for range 3 { // the quorum learns that they are slow
			warm := request("n")
			mustAcquire(t, q, warm)
			if err := q.Release(t.Context(), "n", warm.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		begin := time.Now()
		req := request("n")
		mustAcquire(t, q, req)
		if out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: req.ID, TTL: time.Minute, Mode: store.Exclusive}}); err != nil || out[0].Status != store.Extended {
			t.Errorf("Renew: %+v, %v", out, err)
		}
		if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
			t.Errorf("Release: %v", err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("two hung nodes of five cost %v", took)
		}
	})
}

func TestTooFewAnswersFailAfterTheTimeoutAndNameTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Timeout: 200 * time.Millisecond})
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) })
		nodes[0].set(hang(forever), nil) // also ignores its context
		nodes[2].set(func(context.Context, string) error { return errors.New("connection refused") }, nil)
		begin := time.Now()
		_, err := q.Acquire(t.Context(), request("n"))
		var failed *quorum.NodesError
		if !errors.As(err, &failed) || failed.Confirmed != 1 || failed.Needed != 2 {
			t.Fatalf("Acquire: %v, want a NodesError", err)
		}
		for _, want := range []string{"node0: no reply in time", "node2: connection refused"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not contain %q", err, want)
			}
		}
		if took := time.Since(begin); took != 200*time.Millisecond {
			t.Errorf("failed after %v", took)
		}
	})
}

func TestLateVoteOfARefusedRequestIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		outvote(t, nodes, q)
		late := make(chan struct{})
		slow := nodes[q.Order("n", 1)]
		slow.set(nil, hang(late)) // the node grants, and its reply is late
		if a, err := q.Acquire(t.Context(), request("n")); err != nil || a.Granted() {
			t.Fatalf("granted %v, %v", a.Granted(), err)
		}
		if n := len(holders(t, slow, "n")); n != 1 {
			t.Fatalf("%d holders at the late node, want 1", n)
		}
		close(late)
		synctest.Wait()
		if n := len(holders(t, slow, "n")); n != 0 {
			t.Error("the late vote was not given back")
		}
	})
}

// outvote gives the first and the third node of a name to another client, and returns its request.
func outvote(t *testing.T, nodes []*gate, q *quorum.Store) (other store.Request) {
	t.Helper()
	other = request("n")
	for _, i := range []int{0, 2} {
		if a, err := nodes[q.Order("n", i)].Store.Acquire(t.Context(), other); err != nil || !a.Granted() {
			t.Fatal(a, err)
		}
	}
	return other
}

// taint makes a request that is refused, because others have the votes of two nodes of three. The
// Leave that gives the vote of the second node back times out, and may arrive at any time. The other
// votes have expired when taint returns.
func taint(t *testing.T, nodes []*gate, q *quorum.Store) (req store.Request) {
	t.Helper()
	outvote(t, nodes, q)
	tainted := nodes[q.Order("n", 1)]
	tainted.set(lose("Leave"), nil)
	req = request("n")
	if a, err := q.Acquire(t.Context(), req); err != nil || a.Granted() {
		t.Fatalf("granted %v, %v", a.Granted(), err)
	}
	time.Sleep(time.Minute)
	tainted.set(nil, nil)
	return req
}

func TestVoteDoesNotCountAfterAnUnansweredLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := taint(t, nodes, q)
		first := nodes[q.Order("n", 0)]
		first.set(lose("Acquire"), nil)
		if a, err := q.Acquire(t.Context(), req); err == nil && a.Granted() {
			t.Error("granted with the vote of a node that may still get the Leave")
		}
		first.set(nil, nil)
		req.ID = store.NewID() // another identity is not concerned
		time.Sleep(time.Minute)
		mustAcquire(t, q, req)
	})
}

func TestRestartedNodeIsRepairedUnlessTheLeaseIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := request("n")
		a := mustAcquire(t, q, req)
		renew := func() store.Status {
			out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: req.ID, TTL: time.Minute, Mode: store.Exclusive}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return out[0].Status
		}
		forget := func(g *gate) { g.Store.Leave(t.Context(), "n", req.ID) }
		renew() // all nodes have voted
		forget(nodes[0])
		if s := renew(); s != store.Extended || len(holders(t, nodes[0], "n")) != 1 {
			t.Errorf("status %d, %v: want an extended lease and a repaired node", s, holders(t, nodes[0], "n"))
		}
		forget(nodes[0])
		forget(nodes[1])
		if s := renew(); s != store.Gone {
			t.Errorf("status %d, want Gone", s)
		}
		for i, g := range nodes[:2] {
			if len(holders(t, g, "n")) != 0 {
				t.Errorf("node %d has a vote of the lost lease again", i)
			}
		}
		if b := mustAcquire(t, q, request("n")); b.Token <= a.Token {
			t.Errorf("token %d after %d", b.Token, a.Token)
		}
	})
}

func TestUncontendedRequestsNeedOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := gates(t, 5, quorum.Options{})
		for i := range 1000 {
			req := request(fmt.Sprint(i % 7))
			mustAcquire(t, q, req)
			if err := q.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
		}
		if rounds := q.Rounds(); rounds[1] != 1000 {
			t.Errorf("rounds %v, want 1000 requests of one round", rounds)
		}
	})
}

func TestNodeThatHangsIsSkippedAndCollectsFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) })
		nodes[0].set(hang(forever), nil)
		for i := range 1000 {
			req := request(fmt.Sprint(i))
			mustAcquire(t, q, req)
			time.Sleep(10 * time.Millisecond)
		}
		if n := nodes[0].count(); n > 200 {
			t.Errorf("%d calls to a node that hangs", n)
		}
	})
}

// A node hangs that was healthy so far. Only the first call waits for it, and no longer than a tenth
// of the timeout, whenever the replies of the other nodes arrive.
func TestNodeThatHangsDelaysOneCallForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{})
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		at(0).set(nil, after(time.Millisecond))
		at(1).set(nil, after(10*time.Millisecond))
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) })
		at(2).set(hang(forever), nil)
		begin := time.Now()
		took := func() time.Duration {
			defer func() { begin = time.Now() }()
			return time.Since(begin)
		}
		for i, want := range []time.Duration{quorum.DefaultTimeout / 10, time.Millisecond, time.Millisecond} {
			req := request("n")
			mustAcquire(t, q, req)
			if d := took(); d != want {
				t.Errorf("Acquire %d took %v, want %v", i, d, want)
			}
			if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
			// The slowest node that answers may have to answer the request first.
			if d := took(); d > 20*time.Millisecond {
				t.Errorf("Release %d took %v", i, d)
			}
		}
	})
}

func TestBurstAfterAPauseIsNotTakenForSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		mustAcquire(t, q, request("first"))
		time.Sleep(time.Minute)
		slow := nodes[q.Order("burst", 0)]
		slow.set(nil, func(context.Context, string) error {
			time.Sleep(600 * time.Millisecond)
			return nil
		})
		before := slow.count()
		const burst = 200
		for range burst {
			req := request("burst")
			req.Name += req.ID.String()
			mustAcquire(t, q, req)
		}
		if n := slow.count() - before; n < burst/2 {
			t.Errorf("%d calls to a node that is slow, want most of %d", n, burst)
		}
	})
}

package quorum_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// count sets the counter of a node to a value.
func count(t *testing.T, g *gate, to int64) {
	t.Helper()
	req := request("counter")
	req.Floor = to - 1
	mustAcquire(t, g.Store, req)
	if err := g.Store.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
}

// counter returns the counter of a node.
func counter(t *testing.T, g *gate) int64 {
	t.Helper()
	req := request("counter")
	a := mustAcquire(t, g.Store, req)
	g.Store.Leave(t.Context(), req.Name, req.ID)
	return a.Token - 1
}

// The counters of the nodes differ. One message to each node that is behind makes them agree, and the
// next requests need none.
func TestNodesWithDifferentCountersAgreeByOneRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{})
		for i, g := range nodes {
			count(t, g, int64(1000*i+1000))
		}
		last := int64(0)
		for i := range 20 {
			req := request("n")
			a := mustAcquire(t, q, req)
			if a.Token <= last {
				t.Errorf("token %d after %d", a.Token, last)
			}
			last = a.Token
			mustRelease(t, q, req)
			synctest.Wait()
			renewals := 0
			for _, g := range nodes {
				renewals += g.count("Renew")
			}
			if renewals == 0 || renewals > 2 {
				t.Errorf("%d messages to agree after %d requests, want one or two", renewals, i+1)
			}
		}
	})
}

// The clock of a node is wrong, or its tokens are used up. If the others followed, their tokens would be ahead of
// their clocks, or used up, too. Neither a name that was used before nor a new one depends on the node.
func TestNodeThatIsFarAheadDoesNotPullTheOthersAlong(t *testing.T) {
	const hour = int64(time.Hour / time.Microsecond)
	for _, far := range []int64{hour, store.MaxToken - 2, store.MaxToken} {
		for ahead := range 5 {
			run(t, fmt.Sprintf("node %d at %d", ahead, far), func(t *testing.T) {
				nodes, q := gates(t, 5, quorum.Options{})
				count(t, nodes[ahead], far)
				last := make(map[string]int64)
				for i := range 100 {
					req := request(fmt.Sprint("n", i%(1+i/10)))
					a := mustAcquire(t, q, req)
					if a.Token <= last[req.Name] || a.Token >= hour {
						t.Fatalf("token %d of %s after %d", a.Token, req.Name, last[req.Name])
					}
					last[req.Name] = a.Token
					synctest.Wait()
					req.Tokens = 4
					if out := mustRenew(t, q, req); out.Token >= hour {
						t.Fatalf("Renew: %+v", out)
					}
					mustRelease(t, q, req)
					synctest.Wait()
				}
				for i, g := range nodes {
					if i != ahead && counter(t, g) >= hour {
						t.Errorf("the counter of node %d is %d", i, counter(t, g))
					}
				}
			})
		}
	}
}

// Nodes grant smaller blocks. The counters must not run ahead by the number of tokens that was asked for.
func TestHugeNumberOfTokensDoesNotRunAhead(t *testing.T) {
	for _, tokens := range []int{1 << 31, 1 << 52, math.MaxInt} {
		run(t, fmt.Sprint(tokens), func(t *testing.T) {
			nodes, q := gates(t, 3, quorum.Options{})
			count(t, nodes[0], 500_000) // so that a raise is needed
			count(t, nodes[1], 300_000)
			for range 20 {
				req := request("n")
				req.Tokens = tokens
				if a := mustAcquire(t, q, req); a.Tokens < 1 || a.Token > 1<<30 {
					t.Fatalf("%d tokens from %d", a.Tokens, a.Token)
				}
				if out := mustRenew(t, q, req); out.Token > 1<<30 {
					t.Fatalf("Renew: %+v", out)
				}
				mustRelease(t, q, req)
				synctest.Wait()
			}
			for i, g := range nodes {
				if n := counter(t, g); n > 1<<30 {
					t.Errorf("the counter of node %d is %d", i, n)
				}
			}
		})
	}
}

// The bell is asked first for a contended name, and the others are asked for its token.
func TestBellThatIsFarAheadDoesNotPullTheOthersAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = int64(time.Hour / time.Microsecond)
		nodes, q := gates(t, 5, quorum.Options{})
		setAll(nodes, nil, slow(time.Millisecond))
		ahead := q.Order("n", 0)
		count(t, nodes[ahead], hour)
		holder, waiter := request("n"), queued("n")
		mustAcquire(t, q, holder)
		time.Sleep(time.Second)
		time.AfterFunc(100*time.Millisecond, func() { mustRelease(t, q, holder) })
		mustWait(t, q, waiter)
		time.Sleep(time.Second)
		for i, g := range nodes {
			if n := counter(t, g); i != ahead && n >= hour {
				t.Errorf("the counter of node %d is %d", i, n)
			}
		}
	})
}

// A request under the identity of a lease that is over fails, and its votes arrive late. The lease must not
// be renewed with them: another lease with a higher token has been granted since.
func TestLeaseThatIsOverIsNotRenewedAfterARequestThatFailed(t *testing.T) {
	withNodes(t, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		req, next := request("n"), request("n")
		mustAcquire(t, q, req)
		time.Sleep(req.TTL + time.Second)
		mustAcquire(t, q, next)
		mustRelease(t, q, next)
		synctest.Wait()
		nodes[0].set(down, nil)
		nodes[1].set(nil, only(lose, "Acquire"))
		if a, err := q.Acquire(t.Context(), req); err == nil {
			t.Fatalf("%+v, want an error", a)
		}
		nodes[0].set(nil, nil)
		nodes[1].set(nil, nil)
		time.Sleep(2 * time.Second)
		renew(t, q, req, store.Gone)
	})
}

// A request needs two round trips, because the counters of the nodes differ, and a third node does not answer
// in time. What is left for the second trip must be enough.
func TestRequestThatWaitsForASlowNodeHasTimeToRaiseCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, trip := range []time.Duration{100, 150, 200, 240} {
			nodes, q := gates(t, 3, quorum.Options{})
			for i, g := range nodes {
				count(t, g, int64(10*(i+1)))
				g.set(slow(trip*time.Millisecond), nil)
			}
			nodes[0].set(slow(time.Second), nil)
			begin := time.Now()
			if _, err := q.Acquire(t.Context(), request("n")); err != nil {
				t.Errorf("round trip %d ms: %v after %v", trip, err, time.Since(begin))
			}
		}
	})
}

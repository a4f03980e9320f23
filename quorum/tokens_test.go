package quorum_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

func count(t *testing.T, g *gate, to int64) {
	t.Helper()
	req := request("counter")
	req.Floor = to - 1
	mustAcquire(t, g.Store, req)
	mustRelease(t, g.Store, req)
}

// far is a token that no counter of a test reaches.
const far = 1 << 30

// wantCounters fails if the counter of a node, except for one, is far ahead.
func wantCounters(t *testing.T, nodes []*gate, except int) {
	t.Helper()
	for i, g := range nodes {
		if i == except {
			continue
		}
		if a := mustAcquire(t, g.Store, request("counter")); a.Token > far {
			t.Errorf("the counter of node %d is %d", i, a.Token-1)
		}
	}
}

func TestTokens(t *testing.T) {
	nodeTests{
		// The counters of the nodes differ. One message to each node that is behind makes them agree, and the
		// next requests need none.
		"nodes with different counters agree by one raise": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			for i, g := range nodes {
				count(t, g, int64(1000*i+1000))
			}
			last := int64(0)
			for i := range 20 {
				token := suites.TokenOf(t, q, "n")
				if token <= last {
					t.Errorf("token %d after %d", token, last)
				}
				last = token
				synctest.Wait()
				renewals := 0
				for _, g := range nodes {
					renewals += g.count("Renew")
				}
				if renewals == 0 || renewals > 2 {
					t.Errorf("%d messages to agree after %d requests, want one or two", renewals, i+1)
				}
			}
		},
		// The bell is asked first for a contended name, and the others are asked for its token.
		"a bell that is far ahead does not pull the others along": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			setAll(nodes, nil, slow(time.Millisecond))
			ahead := q.Order("n", 0)
			count(t, nodes[ahead], far)
			holder, waiter := request("n"), queued("n")
			mustAcquire(t, q, holder)
			time.Sleep(time.Second)
			time.AfterFunc(100*time.Millisecond, func() { mustRelease(t, q, holder) })
			mustWait(t, q, waiter)
			time.Sleep(time.Second)
			wantCounters(t, nodes, ahead)
		},
	}.run(t, 5)
}

// A node answers requests again, but the client still skips it for other calls, or they fail.
func TestNodesAgreeWithoutOneThatCannotBeRaised(t *testing.T) {
	withGates(t, 3, quorum.Options{}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		for i, g := range nodes {
			count(t, g, int64(1000*i+1000))
			g.set(slow(time.Duration(i)*time.Millisecond), nil)
		}
		nodes[0].set(only(down, "Renew"), nil)
		if a := mustAcquire(t, q, request("n")); a.Token <= 3000 {
			t.Errorf("token %d, and a node has issued 3000", a.Token)
		}
	})
}

// The clock of a node is wrong, or its tokens are used up. If the others followed, their tokens would be ahead
// of their clocks, or used up, too. Neither a name that was used before nor a new one depends on the node. And
// if a huge number of tokens is requested, nodes grant fewer, and a raise must not skip that number.
func TestTokensDoNotRunAhead(t *testing.T) {
	for _, test := range []struct {
		nodes     int
		far, some int64 // counters of two nodes
		tokens    int
	}{
		{5, far, 1, 1},
		{5, store.MaxToken - 2, 1, 1},
		{5, store.MaxToken, 1, 1},
		{3, 500_000, 300_000, 1 << 31}, // so that a raise is needed
		{3, 500_000, 300_000, 1 << 52},
		{3, 500_000, 300_000, math.MaxInt},
	} {
		for ahead := range test.nodes {
			run(t, fmt.Sprintf("node %d of %+v", ahead, test), func(t *testing.T) {
				nodes, q := gates(t, test.nodes, quorum.Options{})
				count(t, nodes[ahead], test.far)
				count(t, nodes[(ahead+1)%test.nodes], test.some)
				last := make(map[string]int64)
				for i := range 100 {
					req := request(fmt.Sprint("n", i%(1+i/10)))
					req.Tokens = test.tokens
					a := mustAcquire(t, q, req)
					if a.Token <= last[req.Name] || a.Token >= far || a.Tokens < 1 {
						t.Fatalf("%d tokens from %d of %s after %d", a.Tokens, a.Token, req.Name, last[req.Name])
					}
					last[req.Name] = a.Token
					synctest.Wait()
					req.Tokens = max(4, test.tokens)
					if out := mustRenew(t, q, req); out.Token >= far {
						t.Fatalf("Renew: %+v", out)
					}
					mustRelease(t, q, req)
					synctest.Wait()
				}
				wantCounters(t, nodes, ahead)
			})
		}
	}
}

// A request needs two round trips, because the counters of the nodes differ, and a third node does not answer
// in time. What is left for the second trip must be enough.
func TestRequestThatWaitsForASlowNodeHasTimeToRaiseCounters(t *testing.T) {
	for _, trip := range []time.Duration{100, 150, 200, 240} {
		withGates(t, 3, quorum.Options{}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
			for i, g := range nodes {
				count(t, g, int64(10*(i+1)))
				g.set(slow(trip*time.Millisecond), nil)
			}
			nodes[0].set(slow(time.Second), nil)
			if _, err := q.Acquire(t.Context(), request("n")); err != nil {
				t.Errorf("round trip %d ms: %v", trip, err)
			}
		})
	}
}

package quorum_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

var done = store.Keep{State: store.Done, For: time.Hour}

// The reply of a node that granted is lost, either at once or after the request was refused. A request that
// took long to fail may also be executed long after that, even if the node answers others, or if the time limit
// of the quorum is much longer than the one of the node's store.
func TestVoteWhoseReplyWasLostIsGivenBack(t *testing.T) {
	for _, test := range []struct {
		late time.Duration
		busy bool
		own  time.Duration // time limit of the store
	}{{0, false, 0}, {0, true, 0}, {300 * time.Millisecond, false, 0}, {300 * time.Millisecond, true, 0}, {30 * time.Second, false, 0}, {30 * time.Second, true, 0}, {5 * time.Second, false, time.Second}} {
		run(t, fmt.Sprintf("executed after %v, other requests are answered %v, time limit %v", test.late, test.busy, test.own), func(t *testing.T) {
			nodes := newGates(3)
			for _, g := range nodes {
				g.timeout = test.own
			}
			q := openQuorum(t, named(nodes), quorum.Options{Timeout: 10 * test.own})
			other := request("n")
			for _, i := range []int{0, 2} {
				mustAcquire(t, nodes[q.Order("n", i)].Store, other)
			}
			setAll(nodes, nil, slow(time.Millisecond))
			time.Sleep(time.Second)
			voter, req := nodes[q.Order("n", 1)], request("n")
			var sent atomic.Bool
			voter.set(func(ctx context.Context, call string) error {
				if call != "Acquire" || sent.Swap(true) {
					return nil
				}
				time.AfterFunc(test.late, func() { voter.Store.Acquire(context.Background(), req) })
				if test.late > 0 && (test.busy || test.own > 0) {
					time.Sleep(cmp.Or(test.own, 400*time.Millisecond))
				} else if test.late > 0 {
					<-ctx.Done()
				}
				return errDown
			}, nil)
			if test.busy {
				go func() {
					for range 20 {
						time.Sleep(50 * time.Millisecond)
						granted(t, q)
					}
				}()
			}
			mustRefuse(t, q, req)
			time.Sleep(test.late + 2*time.Second)
			wantVotes(t, nodes, req, 0)
			q.Leave(t.Context(), "n", other.ID)
			time.Sleep(2 * time.Minute)
			wantNothing(t, nodes, q)
		})
	}
}

func undialed(context.Context, string) error {
	return &net.OpError{Op: "dial", Err: errDown}
}

func TestUndoing(t *testing.T) {
	nodeTests{
		"a name with a call that never returns collects no messages": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			nodes[0].hangs(t)
			for i := range 10 {
				mustAcquire(t, q, request(fmt.Sprint("hung", i)))
			}
			synctest.Wait()
			nodes[0].set(nil, nil)
			time.Sleep(time.Minute)
			suites.TokenOf(t, q, "another") // the node counts again
			synctest.Wait()
			nodes[0].hangs(t)
			for i := range 100 {
				req := request(fmt.Sprint("hung", i%10))
				mustAcquire(t, q, req)
				wantKept(t, q, req, store.Keep{State: store.Cooling, For: time.Millisecond}, true)
				time.Sleep(time.Second)
			}
			synctest.Wait()
			if sessions, _, _ := q.Remembered(); sessions != 10 {
				t.Errorf("%d identities are remembered, want those with a call that never returned", sessions)
			}
		},
		// A server without memory refuses new locks, but renews and releases those that it has.
		"a node that refuses only Acquire renews and releases": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req := lease(t, q)
			setAll(nodes[:2], only(down, "Acquire"), nil)
			for i := range 20 {
				q.Acquire(t.Context(), request(fmt.Sprint(i)))
				time.Sleep(time.Second)
				mustRenew(t, q, req)
			}
			wantVotes(t, nodes, req, 3)
			mustRelease(t, q, req)
			synctest.Wait()
			wantVotes(t, nodes, req, 0)
		},
		// The pause before a message is repeated ends while the same request waits for its turn at the node.
		"a message is repeated if a request is queued meanwhile": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req, other := lease(t, q), request("n")
			nodes[0].set(nil, down)
			mustRelease(t, q, req)
			synctest.Wait()
			time.Sleep(800 * time.Millisecond)
			nodes[0].set(nil, slow(400*time.Millisecond))
			mustAcquire(t, q, other)
			mustRefuse(t, q, req)
			mustRelease(t, q, other)
			time.Sleep(3 * time.Second)
			wantNothing(t, nodes, q)
		},
	}.run(t, 3)
}

func TestWhatANodeDidNotGetIsRepeated(t *testing.T) {
	for _, names := range [][]string{{"Release"}, {"Leave"}, {"Keep"}, {"Break"}, {"Keep", "Break"}} {
		for i, f := range []fault{down, lose, undialed} {
			run(t, fmt.Sprint(names, i), func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{})
				req := lease(t, q)
				calls := suites.Calls(q, req)
				calls["Keep"] = func(ctx context.Context) error { return q.Release(ctx, "n", req.ID, done) }
				last := names[len(names)-1]
				for _, name := range names {
					if name == last {
						nodes[0].set(f, nil)
					}
					must(t, calls[name](t.Context()))
					synctest.Wait()
				}
				time.Sleep(5 * time.Second)
				nodes[0].set(nil, nil)
				time.Sleep(2 * time.Second)
				page, err := nodes[0].Store.List(t.Context(), store.Query{Name: "n"})
				if closed := len(page.Locks) == 1 && page.Locks[0].Holders[0].State == store.Done; err != nil || closed != (last == "Keep") || !closed && len(page.Locks) > 0 {
					t.Errorf("%+v, %v, want that only Keep closes the name", page.Locks, err)
				}
				time.Sleep(2 * time.Minute)
				wantNothing(t, nil, q)
			})
		}
	}
}

func TestKeep(t *testing.T) {
	nodeTests{
		// The first call keeps the name closed at one node. Another one has not given its vote, and the third one
		// does not answer.
		"a repeated call succeeds only with the record of a majority": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req := request("n")
			nodes[2].set(undialed, nil)
			mustAcquire(t, q, req)
			synctest.Wait()
			nodes[1].set(lose, nil)
			wantKept(t, q, req, done, false)
			nodes[2].set(nil, nil)
			if err := q.Release(t.Context(), "n", req.ID, done); err == nil || errors.Is(err, store.ErrNotHeld) {
				t.Errorf("%v, want that the record of a majority is not known", err)
			}
			nodes[1].set(nil, nil)
			wantKept(t, q, req, done, true)
		},
		// One node keeps the name closed, but its reply was lost. Another one does not answer.
		"a repeated call finds the record of a lost reply": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req := lease(t, q)
			nodes[0].set(nil, only(down, "Release"))
			nodes[2].set(down, nil)
			wantKept(t, q, req, done, false)
			nodes[0].set(nil, nil)
			wantKept(t, q, req, done, true) // two nodes have the record
		},
		"a repeated call succeeds if the nodes are slow": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req := request("n")
			mustAcquire(t, q, req)
			setAll(nodes, only(slow(quorum.DefaultTimeout*3/2), "Release"), nil)
			wantKept(t, q, req, done, false)
			wantKept(t, q, req, done, true)
		},
		// The nodes need more than half of the time limit for each call, and all replies to the Keep were lost.
		"the record of a lost reply is found if the nodes are slow": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req := lease(t, q)
			setAll(nodes, nil, only(down, "Release"))
			wantKept(t, q, req, done, false)
			setAll(nodes, slow(quorum.DefaultTimeout*3/5), nil)
			wantKept(t, q, req, done, false)
			wantKept(t, q, req, done, true)
		},
		// One node is in cool-down.
		"it does not succeed with the record of another one": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req := lease(t, q)
			setAll(nodes[1:], down, nil)
			wantKept(t, q, req, store.Keep{State: store.Cooling, For: time.Hour}, false)
			nodes[1].set(nil, nil)
			wantKept(t, q, req, done, false)
		},
		// A node does not answer meanwhile, so its message is repeated.
		"it does not succeed with the record of an earlier lease": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req, keep := lease(t, q), store.Keep{State: store.Done, For: time.Second}
			nodes[2].set(down, nil)
			wantKept(t, q, req, keep, true)
			time.Sleep(2 * time.Second)
			mustAcquire(t, q, request("n"))
			mustRefuse(t, q, req)
			wantKept(t, q, req, keep, false)
		},
		// Two nodes execute a Keep, but do not answer until the message is no longer repeated.
		"the record of a call that is never answered stays": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req := lease(t, q)
			setAll(nodes[:2], nil, down)
			wantKept(t, q, req, done, false)
			setAll(nodes[:2], down, nil)
			time.Sleep(20 * time.Minute)
			wantVotes(t, nodes, req, 3)
		},
		// The last reply to the Keep tells that too many nodes had no vote. They have votes again by then.
		"a lease that is granted again after it is not broken": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			req := lease(t, q)
			breakAt(t, req, nodes[1:])
			nodes[2].set(lose, nil)
			wantKept(t, q, req, store.Keep{State: store.Cooling, For: time.Millisecond}, false)
			mustAcquire(t, q, req)
			nodes[2].set(nil, nil)
			time.Sleep(5 * time.Second)
			if n := nodes[0].count("Break"); n > 0 {
				t.Errorf("broken %d times", n)
			}
		},
	}.run(t, 3)
	nodeTests{
		"it survives the loss of a minority": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			n, req := len(nodes), request("n")
			nodes[n-1].set(down, nil) // it has no vote
			mustAcquire(t, q, req)
			nodes[n-1].set(nil, nil)
			wantKept(t, q, req, done, true)
			synctest.Wait()
			breakAt(t, req, nodes[:(n-1)/2])
			time.Sleep(2 * time.Second)
			if r := mustRefuse(t, q, request("n")); len(r.Holders) != 1 || r.Holders[0].State != store.Done {
				t.Errorf("%+v, want a refusal by the closure", r)
			}
		},
	}.run(t, 3, 5)
}

func TestVoteThatARepairGetsTooLateIsGivenBack(t *testing.T) {
	withGates(t, 3, quorum.Options{Timeout: 2 * time.Second}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		req := request("n")
		req.TTL = time.Second
		nodes[0].set(undialed, nil)
		mustAcquire(t, q, req)
		time.Sleep(100 * time.Millisecond)
		nodes[0].set(slow(time.Second), nil)
		time.Sleep(1900 * time.Millisecond)
		if n := nodes[0].count("Leave"); n == 0 {
			t.Error("the vote is not given back")
		}
	})
}

// The store of a node gives up a call, and the server executes it later. The time limit of the quorum is much longer.
func TestVoteOfACallThatTheStoreGaveUpIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newGates(3)
		all[0].timeout = time.Second
		q := openQuorum(t, named(all), quorum.Options{Timeout: 10 * time.Second})
		req := request("n")
		all[0].set(func(_ context.Context, call string) error {
			if call != "Acquire" {
				return nil
			}
			time.AfterFunc(5*time.Second, func() { all[0].Store.Acquire(context.Background(), req) })
			time.Sleep(time.Second)
			return errDown
		}, nil)
		mustAcquire(t, q, req)
		time.Sleep(4 * time.Second) // no request is in flight then
		must(t, q.Break(t.Context(), req.Name, req.ID))
		time.Sleep(10 * time.Second)
		wantVotes(t, all, req, 0)
	})
}

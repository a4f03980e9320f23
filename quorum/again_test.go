package quorum_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A selfBounded node ends its calls by itself, after longer than the quorum waits for it, as the
// client library of Redis does.
type selfBounded struct {
	*gate
	timeout time.Duration
}

func (b *selfBounded) Capabilities() store.Capabilities {
	c := b.gate.Capabilities()
	c.Instant, c.Timeout = false, b.timeout
	return c
}

// A node hangs for longer than a call may take, and acts then on the Acquire of a request that has
// been cancelled in the meantime.
func TestRequestThatIsCancelledLeavesNothingAtANodeThatHungForAWhile(t *testing.T) {
	for _, cancelled := range []bool{true, false} {
		t.Run(fmt.Sprint("cancelled=", cancelled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var nodes []*gate
				var all []quorum.Node
				for i := range 3 {
					g := &gate{Store: memstore.New()}
					nodes = append(nodes, g)
					all = append(all, quorum.Node{Name: fmt.Sprint("node", i), Store: &selfBounded{g, 3 * time.Second}})
				}
				q := openQuorum(t, all, quorum.Options{})
				t.Cleanup(func() { q.Close() })
				at := func(i int) *gate { return nodes[q.Order("n", i)] }
				hung := make(chan struct{})
				at(0).set(hang(hung), nil)
				if cancelled {
					at(1).set(hang(hung), nil)
				}
				req := request("n")
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if a, err := q.Acquire(ctx, req); (err != nil) != cancelled {
					t.Fatal(a, err)
				}
				if cancelled {
					q.Leave(t.Context(), "n", req.ID)
				} else if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				close(hung)
				time.Sleep(time.Second)
				for i := range nodes {
					if n := len(holders(t, at(i), "n")); n > 0 {
						t.Errorf("node %d still has the vote", i)
					}
				}
			})
		})
	}
}

// A request is repeated while its lease is valid. One node that voted does not answer, and one that
// did not vote has the vote of another request. The lease stays as it was.
func TestRepeatedRequestThatIsOutvotedKeepsTheVotesOfItsLease(t *testing.T) {
	for _, queue := range []bool{false, true} {
		t.Run(fmt.Sprint("queue=", queue), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{})
				at := func(i int) *gate { return nodes[q.Order("n", i)] }
				at(0).set(down, nil)
				req := request("n")
				req.Queue = queue
				mustAcquire(t, q, req)
				time.Sleep(2 * time.Second)
				at(0).set(nil, nil)
				if a, err := at(0).Store.Acquire(t.Context(), request("n")); err != nil || !a.Granted() {
					t.Fatal(a, err)
				}
				begin := time.Now()
				out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: req.ID, TTL: req.TTL, Mode: store.Exclusive}})
				if err != nil || out[0].Status != store.Extended {
					t.Fatal(out, err)
				}
				at(1).set(down, nil)
				if a, err := q.Acquire(t.Context(), req); err == nil {
					t.Errorf("granted %v, want an error: the outcome is unknown", a.Granted())
				}
				time.Sleep(time.Second)
				at(1).set(nil, nil)
				if time.Since(begin) > out[0].TTL {
					t.Fatal("the lease is over")
				}
				if len(holders(t, at(1), "n")) == 0 || len(holders(t, at(2), "n")) == 0 {
					t.Errorf("the lease is valid for another %v, and has lost its votes", out[0].TTL-time.Since(begin))
				}
			})
		})
	}
}

// A waiter cannot give back votes to nodes that are down. When they are up again, their votes count
// for it nevertheless.
func TestWaiterIsGrantedAfterNodesWereDown(t *testing.T) {
	for name, outages := range map[string][][]int{
		"a majority":          {{1, 2}},
		"one after the other": {{0}, {1}, {2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
				c, err := holdfast.New(q)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				held := request("n")
				held.TTL = time.Hour
				mustAcquire(t, q, held)
				time.Sleep(time.Second)
				granted := make(chan time.Time)
				go func() {
					l, err := c.Lock(t.Context(), "n")
					if err != nil {
						t.Error(err)
					}
					granted <- time.Now()
					if err == nil {
						l.Unlock(t.Context())
					}
				}()
				time.Sleep(time.Second)
				for _, outage := range outages {
					for _, i := range outage {
						nodes[q.Order("n", i)].set(down, nil)
					}
					time.Sleep(1500 * time.Millisecond)
					for _, i := range outage {
						nodes[q.Order("n", i)].set(nil, nil)
					}
					time.Sleep(10 * time.Second)
				}
				released := time.Now()
				if err := q.Release(t.Context(), "n", held.ID, store.Keep{}); err != nil {
					t.Fatal(err)
				}
				if took := (<-granted).Sub(released); took > time.Second {
					t.Errorf("granted %v after the release", took)
				}
			})
		})
	}
}

// A node votes for a waiter, and its reply is lost. A later attempt of the waiter finds that vote and
// gives it back.
func TestVoteWhoseReplyWasLostDoesNotStayWithAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		held := request("n")
		for i := range 2 {
			if a, err := at(i).Store.Acquire(t.Context(), held); err != nil || !a.Granted() {
				t.Fatal(a, err)
			}
		}
		at(2).set(nil, lose("Acquire"))
		mustAcquire(t, q, request("warm-up")) // notices that the node is slow, so that all nodes are asked
		time.Sleep(time.Second)
		c, err := holdfast.New(q)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if _, err := c.Lock(ctx, "n"); err == nil {
				t.Error("granted twice")
			}
		}()
		time.Sleep(time.Second)
		if len(holders(t, at(2), "n")) == 0 {
			t.Error("the node has not voted")
		}
		at(2).set(nil, nil)
		mustAcquire(t, q, request("traffic"))
		time.Sleep(10 * time.Second)
		if len(holders(t, at(2), "n")) > 0 {
			t.Error("the node still has the vote")
		}
		cancel()
		<-ended
	})
}

// As above, but the node has answered other calls since: the vote is given back at once.
func TestVoteWhoseReplyWasLostIsGivenBackToANodeThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		held := request("n")
		for i := range 2 {
			held.Floor = time.Now().UnixMicro() + int64(i)*10_000 // so that the third node is asked too
			if a, err := at(i).Store.Acquire(t.Context(), held); err != nil || !a.Granted() {
				t.Fatal(a, err)
			}
		}
		var lost atomic.Bool
		at(2).set(nil, func(ctx context.Context, call string) error {
			if call == "Acquire" && lost.CompareAndSwap(false, true) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		req := request("n")
		req.Queue = true
		begin := time.Now()
		if a, err := q.Acquire(t.Context(), req); err != nil || a.Granted() {
			t.Fatal(a, err)
		}
		if !lost.Load() || len(holders(t, at(2), "n")) == 0 {
			t.Fatal("the node has not voted")
		}
		time.Sleep(time.Until(begin.Add(quorum.DefaultTimeout - 50*time.Millisecond)))
		mustAcquire(t, q, request("traffic"))
		time.Sleep(200 * time.Millisecond)
		if len(holders(t, at(2), "n")) > 0 {
			t.Error("the node still has the vote")
		}
		q.Leave(t.Context(), "n", req.ID)
	})
}

// A node refuses a request, grants it when it is asked again, and does not answer the message after
// that. Nobody else has the name then, so the request is not refused.
func TestNodeThatGrantsARequestLaterAndThenFailsDoesNotRefuseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []*gate
		var all []quorum.Node
		for i := range 3 {
			nodes = append(nodes, &gate{Store: memstore.New()})
			all = append(all, quorum.Node{Name: fmt.Sprint("node", i), Store: &selfBounded{nodes[i], 3 * time.Second}})
		}
		q := openQuorum(t, all, quorum.Options{Report: func(string, error) {}})
		defer q.Close()
		defer time.Sleep(5 * time.Second) // until the call has ended
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		other := request("n")
		other.Floor = time.Now().UnixMicro() + 10_000 // so that the nodes have to agree on a token
		if a, err := at(1).Store.Acquire(t.Context(), other); err != nil || !a.Granted() {
			t.Fatal(a, err)
		}
		at(2).set(down, nil)
		var calls atomic.Int32
		at(1).set(func(ctx context.Context, call string) error {
			if calls.Add(1) == 2 {
				at(1).Store.Leave(ctx, "n", other.ID)
			}
			return nil
		}, func(_ context.Context, call string) error {
			if call == "Renew" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		if a, err := q.Acquire(t.Context(), request("n")); err == nil {
			t.Errorf("granted %v, want an error", a.Granted())
		}
		if n := calls.Load(); n < 3 {
			t.Errorf("%d calls to the node, want a second request and a renewal", n)
		}
	})
}

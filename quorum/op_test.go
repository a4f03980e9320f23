package quorum_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// after delays the replies of a node.
func after(d time.Duration) func(context.Context, string) error {
	return func(context.Context, string) error {
		time.Sleep(d)
		return nil
	}
}

// A boundedServer is a node that knows when its server restarted, and ends its calls by itself.
type boundedServer struct{ *selfBounded }

func (*boundedServer) Connections() uint64 { return 1 }

func (b *boundedServer) Server(ctx context.Context) (server quorum.Server, err error) {
	err = b.pass(ctx, "Server", func() error {
		server = quorum.Server{ID: "run", Uptime: time.Hour}
		return nil
	})
	return server, err
}

// hungServers returns three nodes, and the first one hangs in all its calls for a time.
func hungServers(d time.Duration) (nodes []quorum.Node, answered *atomic.Bool) {
	answered = new(atomic.Bool)
	for i := range 3 {
		g := &gate{Store: memstore.New()}
		nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: g})
		if i == 0 {
			nodes[i].Store = &boundedServer{&selfBounded{g, 3 * time.Second}}
			g.set(func(context.Context, string) error {
				time.Sleep(d)
				answered.Store(true)
				return errDown
			}, nil)
		}
	}
	return nodes, answered
}

// A node that hangs while the quorum is opened is known not to answer, so later calls do not wait for
// it.
func TestNodeThatHangsWhileTheQuorumIsOpenedDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := hungServers(3 * time.Second)
		reports := make(chan string, 10)
		begin := time.Now()
		q := openQuorum(t, nodes, quorum.Options{Report: func(node string, _ error) { reports <- node }})
		defer time.Sleep(5 * time.Second)
		defer q.Close()
		if d := time.Since(begin); d > quorum.DefaultTimeout+100*time.Millisecond {
			t.Errorf("opened after %v", d)
		}
		if len(reports) != 1 {
			t.Errorf("%d reports, want one of the node that hangs", len(reports))
		}
		for i := range 3 { // the node is the first one for one of the names
			begin = time.Now()
			mustAcquire(t, q, request(fmt.Sprint("n", i)))
			if d := time.Since(begin); d > 0 {
				t.Errorf("granted after %v", d)
			}
		}
	})
}

func TestNodeIsNotBlamedIfThereIsNoTimeToOpenAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := hungServers(600 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := quorum.New(ctx, nodes, quorum.Options{Report: func(node string, err error) { t.Error(node, err) }})
		if d := time.Since(begin); err != context.DeadlineExceeded || d > 500*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
		time.Sleep(time.Second) // the node fails
	})
}

func TestCloseWaitsForACallThatBeganWhileTheQuorumWasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, answered := hungServers(2 * time.Second)
		q := openQuorum(t, nodes, quorum.Options{Report: func(string, error) {}})
		q.Close()
		if !answered.Load() {
			t.Error("a call is in flight after Close")
		}
	})
}

// The votes are split while one of five nodes is known not to answer. The candidate acts on each
// reply of the others, and does not wait for that node.
func TestCandidateDoesNotWaitForANodeThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		at(4).set(lose("Acquire", "Renew", "Release", "Leave"), nil)
		previous := request("n")
		mustAcquire(t, q, previous)
		time.Sleep(time.Second) // it requests the vote of node 4
		if err := q.Release(t.Context(), "n", previous.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for i := 1; i < 4; i++ {
			other := request("n")
			if a, err := at(i).Store.Acquire(t.Context(), other); err != nil || !a.Granted() {
				t.Fatal(a, err)
			}
			time.AfterFunc(2*time.Millisecond, func() { at(i).Store.Leave(context.Background(), "n", other.ID) })
		}
		at(0).set(nil, after(time.Millisecond))
		begin := time.Now()
		mustAcquire(t, q, request("n"))
		if d := time.Since(begin); d > 10*time.Millisecond {
			t.Errorf("granted after %v, and all nodes but one had its vote to give after 2 ms", d)
		}
	})
}

// A node hangs, and the replies of the others decide without it. So the caller must not wait for it.
func TestReplyThatDecidesEndsACallWhileANodeHangs(t *testing.T) {
	for _, kind := range []string{"fails", "refuses", "does not count", "has lost the vote"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := serverNodesWith(t, 5, time.Hour, quorum.Options{Report: func(string, error) {}})
				at := func(i int) *server { return nodes[q.Order("n", i)] }
				forever := make(chan struct{})
				t.Cleanup(func() { close(forever) })
				for i := range nodes { // the nodes do not agree on a token
					high := request("other")
					high.Floor = int64(1000 * (i + 1))
					if a, err := nodes[i].Store.Acquire(t.Context(), high); err != nil || !a.Granted() {
						t.Fatal(a, err)
					}
				}
				req := request("n")
				hung := "Acquire"
				for i, delay := range []time.Duration{time.Millisecond, 0, time.Millisecond, 2 * time.Millisecond} {
					n := at(i)
					before := after(delay)
					switch {
					case i == 1: // it grants the request
					case kind == "fails":
						before = func(context.Context, string) error { time.Sleep(delay); return errDown }
					case kind == "refuses":
						if a, err := n.Store.Acquire(t.Context(), request("n")); err != nil || !a.Granted() {
							t.Fatal(a, err)
						}
					case kind == "does not count":
						n.restart(fmt.Sprint("new", i), 0)
					default:
						hung = "Renew"
						before = func(_ context.Context, call string) error {
							time.Sleep(delay)
							if call == "Renew" {
								n.Store.Leave(context.Background(), "n", req.ID)
							}
							return nil
						}
					}
					n.set(before, nil)
				}
				at(4).set(func(ctx context.Context, call string) error {
					if call == hung {
						<-forever
					}
					return nil
				}, nil)
				begin := time.Now()
				a, err := q.Acquire(t.Context(), req)
				if err == nil && a.Granted() {
					t.Error("granted without a majority")
				}
				if d := time.Since(begin); d > 10*time.Millisecond {
					t.Errorf("%v, %v after %v", a, err, d)
				}
			})
		})
	}
}

func TestCallsEndWithTheirContextWhileNodesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		held, req := request("held"), request("n")
		mustAcquire(t, q, held)
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) })
		for _, n := range nodes {
			n.set(hang(forever), nil)
		}
		for name, call := range map[string]func(ctx context.Context) error{
			"Acquire": func(ctx context.Context) error { _, err := q.Acquire(ctx, req); return err },
			"Release": func(ctx context.Context) error { return q.Release(ctx, "held", held.ID, store.Keep{}) },
			"Leave":   func(ctx context.Context) error { return q.Leave(ctx, "n", req.ID) },
			"Renew": func(ctx context.Context) error {
				_, err := q.Renew(ctx, []store.Renewal{{Name: "held", ID: held.ID, TTL: held.TTL, Mode: held.Mode, Tokens: 2}})
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			begin := time.Now()
			err := call(ctx)
			if d := time.Since(begin); err != context.DeadlineExceeded || d > 10*time.Millisecond {
				t.Errorf("%s: %v after %v", name, err, d)
			}
			cancel()
		}
	})
}

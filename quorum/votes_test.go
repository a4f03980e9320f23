package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// The Leave of an attempt that was refused is still in flight when the next attempt is granted by
// other nodes. It ends the vote that a renewal finds. The identity may have had a lease before, which
// was over when its client, which was paused, got the reply.
func TestRenewalDoesNotCountAVoteThatIsBeingGivenBack(t *testing.T) {
	for _, test := range []struct {
		name    string
		tokens  int
		earlier bool
	}{
		{"without tokens", 0, false},
		{"with a token", 1, false},
		{"after an earlier lease", 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{})
				at := func(i int) *gate { return nodes[q.Order("n", i)] }
				req := request("n")
				req.TTL = time.Second
				if test.earlier {
					mustAcquire(t, q, req)
					time.Sleep(2 * time.Second) // it got the votes of all nodes, and has lost them
				}
				previous := outvote(t, nodes, q)
				leave := make(chan struct{})
				at(1).set(func(ctx context.Context, call string) error {
					if call == "Leave" {
						<-leave
					}
					return nil
				}, nil)
				if a, err := q.Acquire(t.Context(), req); err != nil || a.Granted() {
					t.Fatalf("granted %v, %v", a.Granted(), err)
				}
				for _, i := range []int{0, 2} {
					at(i).Store.Leave(t.Context(), "n", previous.ID)
				}
				mustAcquire(t, q, req) // by nodes 0 and 2
				time.Sleep(300 * time.Millisecond)
				at(0).set(down, nil)
				renewal := store.Renewal{Name: "n", ID: req.ID, TTL: req.TTL, Mode: store.Exclusive, Tokens: test.tokens}
				begin := time.Now()
				out, err := q.Renew(t.Context(), []store.Renewal{renewal})
				if err != nil {
					t.Fatal(err)
				}
				at(1).set(nil, nil)
				close(leave)
				at(1).set(down, nil) // the Acquire that follows the Leave is lost
				synctest.Wait()
				// Another client takes the vote that was given back, and the vote of node 0 when
				// it has expired.
				time.Sleep(time.Until(begin.Add(950 * time.Millisecond)))
				other := request("n")
				votes := 0
				for i := range nodes {
					if a, err := at(i).Store.Acquire(t.Context(), other); err == nil && a.Granted() {
						votes++
					}
				}
				if out[0].Status == store.Extended && time.Since(begin) < out[0].TTL && votes >= 2 {
					t.Errorf("extended for %v, and after %v another client has %d votes", out[0].TTL, time.Since(begin), votes)
				}
			})
		})
	}
}

func TestIdentitiesAreForgottenWhileANodeIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		nodes[1].set(down, nil)
		for i := range 3000 {
			req := request(fmt.Sprint(i))
			mustAcquire(t, q, req)
			if err := q.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if n := q.Sessions(); n > 10 {
			t.Errorf("%d identities are remembered, and none is in use", n)
		}
	})
}

// A server is a node that can restart.
type server struct {
	*gate
	mu          sync.Mutex
	connections uint64
	id          string
	uptime      time.Duration
}

func (s *server) Connections() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

func (s *server) Server(context.Context) (quorum.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return quorum.Server{ID: s.id, Uptime: s.uptime}, nil
}

func (s *server) restart(id string, uptime time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
	s.id, s.uptime = id, uptime
}

func serverNodes(t *testing.T, n int, uptime time.Duration) ([]*server, *quorum.Store) {
	t.Helper()
	return serverNodesWith(t, n, uptime, quorum.Options{})
}

func serverNodesWith(t *testing.T, n int, uptime time.Duration, opts quorum.Options) ([]*server, *quorum.Store) {
	t.Helper()
	var all []*server
	var nodes []quorum.Node
	for i := range n {
		s := &server{gate: &gate{Store: memstore.New()}}
		s.restart(fmt.Sprint("run", i), uptime)
		all = append(all, s)
		nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: s})
	}
	q := openQuorum(t, nodes, opts)
	t.Cleanup(func() { q.Close() })
	return all, q
}

// A machine that boots may set its clock after the server has started, which makes the server seem
// older than it is.
func TestNodeThatRestartedDoesNotCountWhateverItsClockSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := serverNodes(t, 3, time.Hour)
		mustAcquire(t, q, request("warm-up"))
		time.Sleep(time.Minute)
		req := request("n")
		mustAcquire(t, q, req)
		time.Sleep(20 * time.Millisecond)
		nodes[0].set(down, nil)
		restarted := nodes[1]
		restarted.restart("new", time.Hour)
		restarted.Store.Leave(t.Context(), "n", req.ID)
		other := request("other")
		if a, err := q.Acquire(t.Context(), other); err == nil && a.Granted() {
			t.Error("granted with the vote of a node that restarted just now")
		}
		q.Leave(t.Context(), "other", other.ID)
		time.Sleep(31 * time.Second)
		restarted.restart("new", time.Hour+31*time.Second) // a new connection to the same server
		mustAcquire(t, q, request("other"))
	})
}

// A node whose listing fails, but which answers questions about one name, does not hide any name.
func TestListShowsAllNamesIfTheListingOfANodeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make([]*lister, 3)
		all := make([]quorum.Node, 3)
		for i := range nodes {
			nodes[i] = &lister{Store: memstore.New()}
			all[i] = quorum.Node{Name: fmt.Sprint("node", i), Store: nodes[i]}
		}
		q := openQuorum(t, all, quorum.Options{})
		defer q.Close()
		for i := range 20 {
			mustAcquire(t, q, request(fmt.Sprint("name", i)))
		}
		time.Sleep(20 * time.Millisecond)
		for _, n := range nodes {
			n.fails = true
			seen := make(map[string]int)
			for query := (store.Query{Limit: 7}); ; {
				page, err := q.List(t.Context(), query)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range page.Locks {
					seen[l.Name]++
				}
				if query.Cursor = page.Next; query.Cursor == "" {
					break
				}
			}
			n.fails = false
			if len(seen) != 20 {
				t.Errorf("%d names of 20: %v", len(seen), seen)
			}
		}
	})
}

type lister struct {
	*memstore.Store
	fails bool
}

func (l *lister) List(ctx context.Context, q store.Query) (store.Page, error) {
	if l.fails && q.Name == "" {
		return store.Page{}, errors.New("too many names")
	}
	return l.Store.List(ctx, q)
}

// Of several requests, the one with the vote of the first node in the order of the name
// continues.
func TestOrderOfTheNodesDoesNotDependOnTheListOfAClient(t *testing.T) {
	nodes := []quorum.Node{{Name: "c", Store: memstore.New()}, {Name: "a", Store: memstore.New()}, {Name: "b", Store: memstore.New()}}
	one := openQuorum(t, nodes, quorum.Options{})
	defer one.Close()
	for range nodes {
		nodes = append(nodes[1:], nodes[0])
		other := openQuorum(t, nodes, quorum.Options{})
		if got, want := other.Names("n"), one.Names("n"); !slices.Equal(got, want) {
			t.Errorf("asks %q, another client %q", got, want)
		}
	}
	slices.Reverse(nodes)
	other := openQuorum(t, nodes, quorum.Options{})
	if got, want := other.Names("n"), one.Names("n"); !slices.Equal(got, want) {
		t.Errorf("asks %q, another client %q", got, want)
	}
}

// A server whose memory is full refuses new locks, but still releases locks.
func TestNodeThatFailsNowAndThenIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var reports []string
		nodes, q := gates(t, 3, quorum.Options{Report: func(node string, err error) {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, fmt.Sprint(node, ": ", err))
		}})
		want := func(all ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(reports, all) {
				t.Errorf("reports %q, want %q", reports, all)
			}
		}
		pairs := func() {
			for range 100 {
				req := request("n")
				mustAcquire(t, q, req)
				if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		full := nodes[q.Order("n", 0)]
		full.set(func(_ context.Context, call string) error {
			if call == "Acquire" {
				return errors.New("full")
			}
			return nil
		}, nil)
		pairs()
		name := q.Names("n")[0]
		want(name + ": full")
		full.set(nil, nil)
		pairs()
		want(name+": full", name+": <nil>")
	})
}

// Another handle releases a lease while this one asks the last node for its vote, after some time or
// because of a renewal.
func TestVoteForALeaseThatAnotherHandleReleasedIsGivenBack(t *testing.T) {
	renew := func(tokens int) func(t *testing.T, q *quorum.Store, req store.Request) {
		return func(t *testing.T, q *quorum.Store, req store.Request) {
			mustRenew(t, q, store.Renewal{Name: "n", ID: req.ID, TTL: req.TTL, Mode: store.Exclusive, Tokens: tokens})
		}
	}
	for name, do := range map[string]func(t *testing.T, q *quorum.Store, req store.Request){
		"completed":            func(*testing.T, *quorum.Store, store.Request) {},
		"renewed":              renew(0),
		"renewed with a token": renew(1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{})
				at := func(i int) *gate { return nodes[q.Order("n", i)] }
				req := request("n")
				asked := false
				at(2).set(func(ctx context.Context, call string) error {
					if call == "Acquire" {
						asked = true
						for i := range nodes {
							at(i).Store.Leave(t.Context(), "n", req.ID)
						}
					}
					return nil
				}, nil)
				mustAcquire(t, q, req) // by nodes 0 and 1
				do(t, q, req)
				time.Sleep(time.Second)
				page, err := at(2).Store.List(t.Context(), store.Query{Name: "n"})
				if err != nil || len(page.Locks) > 0 || !asked {
					t.Errorf("asked %v, left at the last node: %+v, %v", asked, page.Locks, err)
				}
			})
		})
	}
}

// Another handle releases a lease. Its message to the last node arrives before the request of the
// holder's handle for the vote of that node, and its messages to the other nodes arrive later.
func TestReleaseThroughAnotherHandleEndsAVoteThatIsRequestedMeanwhile(t *testing.T) {
	calls := map[string]func(ctx context.Context, q *quorum.Store, id store.ID) error{
		"Release": func(ctx context.Context, q *quorum.Store, id store.ID) error {
			return q.Release(ctx, "n", id, store.Keep{})
		},
		"Leave": func(ctx context.Context, q *quorum.Store, id store.ID) error { return q.Leave(ctx, "n", id) },
		"Break": func(ctx context.Context, q *quorum.Store, id store.ID) error { return q.Break(ctx, "n", id) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{})
				others, other := gates(t, 3, quorum.Options{})
				at := func(i int) *gate { return nodes[q.Order("n", i)] }
				for i := range nodes {
					others[i].Store = nodes[i].Store // the same servers
					if i == q.Order("n", 2) {
						continue
					}
					others[i].set(func(_ context.Context, called string) error {
						if called == name {
							time.Sleep(30 * time.Millisecond)
						}
						return nil
					}, nil)
				}
				req := request("n")
				mustAcquire(t, q, req) // by nodes 0 and 1; asks node 2 after 10 ms
				if err := call(t.Context(), other, req.ID); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				for i := range nodes {
					page, err := at(i).Store.List(t.Context(), store.Query{Name: "n"})
					if err != nil || len(page.Locks) > 0 {
						t.Errorf("left at node %d: %+v, %v", i, page.Locks, err)
					}
				}
			})
		})
	}
}

// The address of a node leads to the server of another node, until one of them gets the server that
// is left.
func TestServerThatIsTwoNodesForAWhileHasOneVote(t *testing.T) {
	for moved := range 2 {
		t.Run(fmt.Sprintf("node %d moves", moved), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := serverNodesWith(t, 3, time.Hour, quorum.Options{Report: func(string, error) {}})
				acquire := func() error {
					req := request("n")
					a, err := q.Acquire(t.Context(), req)
					if err == nil && !a.Granted() {
						t.Error("refused")
					}
					q.Leave(t.Context(), "n", req.ID)
					time.Sleep(time.Minute)
					return err
				}
				nodes[1].restart("run0", time.Hour)
				acquire()
				nodes[0].restart("run0", time.Hour) // a new connection
				if err := acquire(); err != nil {
					t.Errorf("two servers answer: %v", err)
				}
				nodes[2].set(down, nil)
				if err := acquire(); err == nil {
					t.Error("granted with two votes of one server")
				}
				nodes[2].set(nil, nil)
				nodes[moved].restart("run1", time.Hour)
				acquire()
				nodes[2].set(down, nil)
				if err := acquire(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A pair is a server that replies when another one is asked too, if both is set.
type pair struct {
	*server
	both *sync.WaitGroup
}

func (p *pair) Server(ctx context.Context) (quorum.Server, error) {
	if p.both != nil {
		p.both.Done()
		p.both.Wait()
	}
	return p.server.Server(ctx)
}

func TestNodesThatFindThemselvesOnOneServerAtTheSameTimeDoNotBothCount(t *testing.T) {
	for range 500 {
		var pairs []*pair
		var nodes []quorum.Node
		for i := range 3 {
			p := &pair{server: &server{gate: &gate{Store: memstore.New()}}}
			p.restart(fmt.Sprint("run", i), time.Hour)
			pairs = append(pairs, p)
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: p})
		}
		q := openQuorum(t, nodes, quorum.Options{RestartDelay: -1, Report: func(string, error) {}})
		var both sync.WaitGroup
		both.Add(2)
		for _, p := range pairs[:2] {
			p.restart("same", time.Hour)
			p.both = &both
		}
		pairs[2].set(down, nil)
		if a, err := q.Acquire(t.Context(), request("n")); err == nil && a.Granted() {
			t.Fatal("granted with two votes of one server")
		}
		q.Close()
	}
}

// A node answers a renewal after the lease was left, and the identity has requested the name again. The
// session of the second lease stays.
func TestLateReplyToARenewalDoesNotEndTheSessionOfTheNextLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Timeout: 2 * time.Second})
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		req := request("n")
		mustAcquire(t, q, req) // by nodes 0 and 1
		at(2).set(nil, func(_ context.Context, call string) error {
			if call == "Renew" {
				time.Sleep(time.Second)
			}
			return nil
		})
		mustRenew(t, q, store.Renewal{Name: "n", ID: req.ID, TTL: req.TTL, Mode: store.Exclusive})
		if err := q.Leave(t.Context(), "n", req.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		mustAcquire(t, q, req)
		time.Sleep(2 * time.Second)
		if n := q.Sessions(); n != 1 {
			t.Errorf("%d identities are remembered, want the one that holds the name", n)
		}
	})
}

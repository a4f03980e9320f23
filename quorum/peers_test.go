package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// hosts returns servers that several clients use.
func hosts(n int) (all []*server) {
	for i := range n {
		s := &server{gate: &gate{Store: memstore.New()}}
		s.restart(fmt.Sprint("run", i), time.Hour)
		all = append(all, s)
	}
	return all
}

// nodesOn returns nodes on some of the servers.
func nodesOn(all []*server, indexes ...int) (nodes []quorum.Node) {
	for _, i := range indexes {
		nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: locatedServer{all[i]}})
	}
	return nodes
}

// join opens a quorum of some of the servers for one more client.
func join(t *testing.T, all []*server, opts quorum.Options, indexes ...int) (*quorum.Store, error) {
	t.Helper()
	nodes := nodesOn(all, indexes...)
	if opts.Report == nil {
		opts.Report = func(string, error) {}
	}
	q, err := quorum.New(t.Context(), nodes, opts)
	if err == nil {
		t.Cleanup(func() { q.Close() })
		req := request("first")
		q.Acquire(t.Context(), req)
		q.Leave(t.Context(), req.Name, req.ID)
	}
	return q, err
}

func TestClientsWhoseListsDoNotFitAreRefused(t *testing.T) {
	for _, test := range []struct {
		name        string
		first, next []int
		fits        bool
	}{
		{"another order", []int{0, 1, 2}, []int{2, 0, 1}, true},
		{"a node is added", []int{0, 1, 2}, []int{0, 1, 2, 3}, true},
		{"a node is removed", []int{0, 1, 2, 3}, []int{1, 2, 3}, true},
		{"other servers", []int{0, 1, 2}, []int{3, 4, 5}, true},
		{"a node is replaced", []int{0, 1, 2}, []int{1, 2, 3}, false},
		{"two nodes are added", []int{0, 1, 2}, []int{0, 1, 2, 3, 4}, false},
		{"one node in common", []int{0, 1, 2}, []int{2, 3, 4}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := hosts(6)
				if _, err := join(t, all, quorum.Options{}, test.first...); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // until all nodes are told
				_, err := join(t, all, quorum.Options{}, test.next...)
				if (err == nil) != test.fits {
					t.Fatalf("error %v", err)
				}
				if err != nil && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "node0,node1,node2") || !strings.Contains(err.Error(), "add the new one")) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// An unreached is a server that cannot be identified.
type unreached struct{ locatedServer }

func (unreached) Server(context.Context) (quorum.Server, error) { return quorum.Server{}, errDown }

// A client that knows the servers under other names may have ended before it told all of them.
func TestListThatWasNotToldToAllNodesFits(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("a node is reached later: ", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := hosts(3)
				open := func(names string, missing func(context.Context, string) error) (*quorum.Store, error) {
					var nodes []quorum.Node
					for i, s := range all {
						own := &server{gate: &gate{Store: s.gate.Store}}
						own.restart(fmt.Sprint("run", i), time.Hour)
						node := quorum.Node{Name: fmt.Sprint(names, i), Store: locatedServer{own}}
						if i == 2 && missing != nil {
							own.set(missing, nil)
							if late {
								node.Store = unreached{locatedServer{own}}
							}
						}
						nodes = append(nodes, node)
					}
					return quorum.New(t.Context(), nodes, quorum.Options{Report: func(string, error) {}})
				}
				one, err := open("host", func(_ context.Context, call string) error {
					if call == "Acquire" || late {
						return errDown
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				defer one.Close()
				mustAcquire(t, one, request("n"))
				synctest.Wait()
				two, err := open("address", nil)
				if err != nil {
					t.Fatal(err)
				}
				defer two.Close()
				mustAcquire(t, two, request("another"))
			})
		})
	}
}

// A list that does not fit is refused even if the other client has not reached all of its nodes.
func TestListThatDoesNotFitIsRefusedIfANodeOfTheOtherWasNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		var nodes []quorum.Node
		for i, s := range all[:3] {
			node := quorum.Node{Name: fmt.Sprint("node", i), Store: locatedServer{s}}
			if i == 2 {
				own := &server{gate: &gate{Store: s.gate.Store}}
				own.set(down, nil)
				node.Store = unreached{locatedServer{own}}
			}
			nodes = append(nodes, node)
		}
		one, err := quorum.New(t.Context(), nodes, quorum.Options{Report: func(string, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		mustAcquire(t, one, request("n"))
		if _, err := join(t, all, quorum.Options{}, 1, 2, 3); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("error %v, want ErrInvalid", err)
		}
	})
}

// A program was given a list that does not fit while another program could not reach the node that
// only its own list has.
func TestNodeThatIsReachedLaterDoesNotCountIfAnotherListDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		var reached atomic.Bool
		open := func(names string, indexes ...int) (own map[int]*server, q *quorum.Store, err error) {
			own = make(map[int]*server)
			var nodes []quorum.Node
			for _, i := range indexes {
				own[i] = &server{gate: &gate{Store: all[i].gate.Store}}
				own[i].restart(fmt.Sprint("run", i), time.Hour)
				node := quorum.Node{Name: fmt.Sprint(names, i), Store: locatedServer{own[i]}}
				if i == 3 {
					own[i].set(down, nil)
					node.Store = lateServer{locatedServer{own[i]}, &reached}
				}
				nodes = append(nodes, node)
			}
			q, err = quorum.New(t.Context(), nodes, quorum.Options{Report: func(string, error) {}})
			if err == nil {
				t.Cleanup(func() { q.Close() })
			}
			return own, q, err
		}
		ownA, a, err := open("host", 0, 1, 3)
		if err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, a, request("first"))
		synctest.Wait()
		ownB, b, err := open("address", 0, 1, 2)
		if err != nil {
			t.Fatal(err) // the node that was not reached may be the one that the list of the other client lacks
		}
		mustAcquire(t, b, request("second"))
		synctest.Wait()
		ownA[1].set(down, nil)
		ownB[0].set(down, nil)
		mustAcquire(t, b, request("n"))
		synctest.Wait()
		reached.Store(true)
		ownA[3].set(nil, nil)
		for k := range 3 {
			out, err := a.Acquire(t.Context(), request("n"))
			if err == nil && out.Granted() {
				t.Errorf("call %d is granted, and another client holds the name", k)
			}
			synctest.Wait()
		}
	})
}

// A client tells the others at once that it has reached a further server of its list.
func TestListThatDoesNotFitIsRefusedWhenANodeWasReachedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		var reached atomic.Bool
		nodes := nodesOn(all, 0, 1, 2)
		nodes[2].Store = lateServer{locatedServer{all[2]}, &reached}
		all[2].set(down, nil)
		q := openQuorum(t, nodes, quorum.Options{})
		defer q.Close()
		for range 2 { // the second call looks at the lists of others
			mustAcquire(t, q, request("n"+store.NewID().String()))
			time.Sleep(time.Second)
		}
		reached.Store(true)
		all[2].set(nil, nil)
		time.Sleep(5 * time.Second)
		mustAcquire(t, q, request("reached"))
		time.Sleep(time.Second)
		if _, err := join(t, all, quorum.Options{}, 0, 1, 3); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("error %v, want that the list is refused", err)
		}
	})
}

// Without a restart delay, nodes count whose servers cannot be identified. And a server may have no identity.
func TestListThatDoesNotFitIsRefusedIfServersCannotBeIdentified(t *testing.T) {
	for _, nameless := range []bool{false, true} {
		t.Run(fmt.Sprint("they have no identity: ", nameless), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := hosts(4)
				open := func(indexes ...int) (*quorum.Store, error) {
					var nodes []quorum.Node
					var delay time.Duration
					for _, i := range indexes {
						var node quorum.Node
						node, delay = quorum.Node{Name: fmt.Sprint("node", i), Store: unreached{locatedServer{all[i]}}}, -1
						if nameless {
							all[i].restart("", time.Hour)
							node.Store, delay = locatedServer{all[i]}, 0
						}
						nodes = append(nodes, node)
					}
					q, err := quorum.New(t.Context(), nodes, quorum.Options{RestartDelay: delay, Report: func(string, error) {}})
					if err == nil {
						t.Cleanup(func() { q.Close() })
					}
					return q, err
				}
				one, err := open(0, 1, 2)
				if err != nil {
					t.Fatal(err)
				}
				mustAcquire(t, one, request("n"))
				synctest.Wait()
				if _, err := open(1, 2, 3); !errors.Is(err, store.ErrInvalid) {
					t.Errorf("error %v, want that the list is refused", err)
				}
			})
		})
	}
}

// The records of a client that has ended do not stay.
func TestListOfAClientThatHasEndedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		q, err := join(t, all, quorum.Options{}, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		req := request("n")
		mustAcquire(t, q, req)
		for range 10 { // the list stays known while the client is used
			time.Sleep(20 * time.Second)
			mustRenew(t, q, req)
		}
		time.Sleep(40 * time.Second)
		if _, err := join(t, all, quorum.Options{}, 1, 2, 3); err == nil {
			t.Error("a list that does not fit was accepted while the other one is in use")
		}
		time.Sleep(time.Minute)
		if _, err := join(t, all, quorum.Options{}, 1, 2, 3); err != nil {
			t.Error(err)
		}
	})
}

// A node is replaced as the documentation says.
func TestListOfTheFirstStepOfARolloutIsForgottenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		first, err := join(t, all, quorum.Options{}, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, first, request("n"))
		if _, err := join(t, all, quorum.Options{}, 0, 1, 2, 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(request("n").TTL + time.Minute)
		if _, err := join(t, all, quorum.Options{}, 1, 2, 3); err != nil {
			t.Error(err)
		}
	})
}

// Two clients that start at the same time do not see each other's list at once.
func TestClientFindsOutThatAnotherListDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		two := make([]*quorum.Store, 2)
		tellLater := func(context.Context, string) error { time.Sleep(10 * time.Millisecond); return nil }
		for _, s := range all {
			s.set(tellLater, nil)
		}
		held := request("held") // by the first call, because the next one looks at the lists
		first := func(q *quorum.Store, req store.Request) {
			if a, err := q.Acquire(t.Context(), req); err != nil || !a.Granted() {
				t.Errorf("%+v, %v", a, err)
			}
		}
		var calls sync.WaitGroup
		for i := range two {
			var nodes []quorum.Node
			for k := i; k < i+3; k++ {
				nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", k), Store: locatedServer{all[k]}})
			}
			two[i] = openQuorum(t, nodes, quorum.Options{})
			defer two[i].Close()
		}
		calls.Go(func() { first(two[0], held) })
		calls.Go(func() { first(two[1], request("other")) })
		calls.Wait()
		time.Sleep(25 * time.Second)
		mustRenew(t, two[0], held)
		time.Sleep(10 * time.Second)
		mustRenew(t, two[0], held) // looks at the lists
		synctest.Wait()
		time.Sleep(time.Second)
		if _, err := two[0].Acquire(t.Context(), request("n")); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
		mustRenew(t, two[0], held)
		mustRelease(t, two[0], held)
	})
}

// A node that restarts may have forgotten a lease of another client, with a TTL that is longer than
// those of this client.
func TestNodeDoesNotCountBeforeTheLargestTTLOfOtherClientsIsOver(t *testing.T) {
	const long = 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		short, err := join(t, all, quorum.Options{}, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		other, err := join(t, all, quorum.Options{}, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // records of what was used before are over
		if !granted(t, short) {
			t.Fatal("not granted")
		}
		req := request("probe")
		req.TTL = long
		mustAcquire(t, other, req)
		synctest.Wait()
		all[2].set(down, nil) // the lease is at nodes 0 and 1, and node 0 restarts empty
		all[2].Store.Leave(t.Context(), req.Name, req.ID)
		all[0].Store.Leave(t.Context(), req.Name, req.ID)
		all[0].restart("run again", 0)
		all[2].set(nil, nil)
		for range 9 {
			time.Sleep(time.Minute)
			if granted(t, short) {
				t.Fatal("two holders")
			}
			all[0].Store.Leave(t.Context(), req.Name, req.ID)
			all[2].Store.Leave(t.Context(), req.Name, req.ID)
		}
	})
}

// A client with a fixed restart delay refuses longer TTLs. Its record lives for longer than they do.
func TestListIsKnownWhileALeaseIsHeldWithAFixedRestartDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		q, err := join(t, all, quorum.Options{RestartDelay: 30 * time.Second}, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, q, request("first of the period"))
		synctest.Wait()
		time.Sleep(29 * time.Second)
		mustAcquire(t, q, request("n"))
		time.Sleep(20 * time.Second)
		if _, err := join(t, all, quorum.Options{}, 1, 2, 3); err == nil {
			t.Error("a list that does not fit was accepted while a lease of the other one is held")
		}
	})
}

// The first calls of a client do not tell the nodes its TTL one after the other, and are cancelled
// meanwhile if their contexts end.
func TestFirstCallsDoNotWaitForEachOther(t *testing.T) {
	const trip = 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		var nodes []quorum.Node
		for i, s := range all {
			s.set(func(context.Context, string) error { time.Sleep(trip); return nil }, nil)
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: locatedServer{s}})
		}
		q := openQuorum(t, nodes, quorum.Options{})
		defer q.Close()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				ctx, want := t.Context(), error(nil)
				if i%2 == 1 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, trip/2)
					defer cancel()
					want = context.DeadlineExceeded
				}
				begin := time.Now()
				_, err := q.Acquire(ctx, request(fmt.Sprint(i)))
				if took := time.Since(begin); !errors.Is(err, want) || took > 4*trip || want != nil && took > trip/2 {
					t.Errorf("call %d: %v after %v", i, err, took)
				}
			})
		}
		calls.Wait()
	})
}

// A lateServer cannot be identified until it is reached.
type lateServer struct {
	locatedServer
	reached *atomic.Bool
}

func (l lateServer) Server(ctx context.Context) (quorum.Server, error) {
	if !l.reached.Load() {
		return quorum.Server{}, errDown
	}
	return l.locatedServer.Server(ctx)
}

// A client could not reach a node when it was opened. Before its first call, another client takes a
// long lease, and that node restarts without it.
func TestNodeThatIsReachedLaterDoesNotCountBeforeTheLargestTTLOfOtherClientsIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		var reached atomic.Bool
		var nodes []quorum.Node
		for i, s := range all {
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: locatedServer{s}})
		}
		nodes[0].Store = lateServer{locatedServer{all[0]}, &reached}
		idle := openQuorum(t, nodes, quorum.Options{})
		defer idle.Close()
		other, err := join(t, all, quorum.Options{}, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		req := request("probe")
		req.TTL = 10 * time.Minute
		mustAcquire(t, other, req)
		synctest.Wait()
		for _, i := range []int{0, 2} { // the lease was at nodes 0 and 1, and node 0 restarts empty
			all[i].Store.Leave(t.Context(), req.Name, req.ID)
		}
		all[0].restart("run again", time.Minute)
		reached.Store(true)
		if granted(t, idle) {
			t.Error("two holders")
		}
	})
}

// A slowLister is a server whose List takes long.
type slowLister struct{ locatedServer }

func (s slowLister) List(ctx context.Context, q store.Query) (store.Page, error) {
	time.Sleep(5 * time.Millisecond)
	return s.locatedServer.List(ctx, q)
}

// While another client was idle, a client began to use a larger TTL, and a node restarted without its
// lease. The idle client makes two calls then. The second one finds the server identified, while the
// first one still asks for the TTLs of others.
func TestNodeDoesNotCountWhileTheTTLsOfOtherClientsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		var nodes []quorum.Node
		for i, s := range all {
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: slowLister{locatedServer{s}}})
		}
		idle := openQuorum(t, nodes, quorum.Options{})
		defer idle.Close()
		if !granted(t, idle) {
			t.Fatal("not granted before the restart")
		}
		time.Sleep(time.Second)
		other, err := join(t, all, quorum.Options{}, 0, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		req := request("probe")
		req.TTL = 10 * time.Minute
		mustAcquire(t, other, req)
		synctest.Wait()
		for _, i := range []int{0, 2} { // the lease was at nodes 0 and 1, and node 0 restarts empty
			all[i].Store.Leave(t.Context(), req.Name, req.ID)
		}
		time.Sleep(40 * time.Second)
		all[0].restart("run again", 39*time.Second)
		first := make(chan error)
		go func() {
			_, err := idle.Acquire(t.Context(), request("another"))
			first <- err
		}()
		time.Sleep(time.Millisecond) // less than List takes
		if granted(t, idle) {
			t.Error("two holders")
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// use opens a quorum of all servers, and makes no call.
func use(t *testing.T, all []*server) *quorum.Store {
	t.Helper()
	var nodes []quorum.Node
	for i, s := range all {
		nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: locatedServer{s}})
	}
	q := openQuorum(t, nodes, quorum.Options{})
	t.Cleanup(func() { q.Close() })
	return q
}

// The first call with a TTL tells it to the nodes before.
func TestCallsWithANewTTLTakeNoLongerThanOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		q := use(t, all)
		forever := make(chan struct{})
		t.Cleanup(func() { close(forever) })
		all[2].set(hang(forever), nil)
		req, begin := request("n"), time.Now()
		mustAcquire(t, q, req)
		req.TTL *= 2
		mustRenew(t, q, req)
		if took := time.Since(begin); took > 0 {
			t.Errorf("one node hangs: took %v", took)
		}
		all = hosts(3)
		q = use(t, all)
		for _, s := range all {
			s.set(hang(forever), nil)
		}
		begin = time.Now()
		var calls sync.WaitGroup
		for i := range 5 {
			calls.Go(func() {
				req := request(fmt.Sprint(i))
				req.TTL = time.Hour
				if _, err := q.Acquire(t.Context(), req); err == nil {
					t.Error("granted by nodes that hang")
				}
			})
		}
		calls.Wait()
		if took, most := time.Since(begin), q.Capabilities().Timeout; took > most {
			t.Errorf("all nodes hang: took %v, want %v at most", took, most)
		}
	})
}

// A client could not tell the nodes its TTL, because it was cut off. When it is back, it takes a lease. A node
// is down then, and later another one restarts without its data.
func TestNoLeaseIsGrantedBeforeItsTTLIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		q, other := use(t, all), use(t, all)
		if !granted(t, other) {
			t.Fatal("not granted before")
		}
		req := request("probe")
		req.TTL = 10 * time.Minute
		for _, s := range all {
			s.set(down, nil)
		}
		for range 2 {
			if _, err := q.Acquire(t.Context(), req); err == nil {
				t.Fatal("granted by nodes that are down")
			}
			time.Sleep(time.Second)
		}
		for _, s := range all[:2] {
			s.set(nil, nil)
		}
		mustAcquire(t, q, req)
		time.Sleep(5 * time.Second)
		all[2].set(nil, nil)
		all[0].Store.Leave(t.Context(), req.Name, req.ID)
		time.Sleep(time.Minute)
		all[0].restart("run again", time.Minute)
		if granted(t, other) {
			t.Error("two holders")
		}
	})
}

// A client cannot repeat what it told the nodes. It does so with its next call, and not a period later.
func TestListThatCouldNotBeToldIsToldWithTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		q := use(t, all[:3])
		told := request("told")
		mustAcquire(t, q, told)
		mustRelease(t, q, told)
		mustAcquire(t, q, request("repeated"))
		synctest.Wait()
		time.Sleep(31 * time.Second)
		for _, s := range all {
			s.set(down, nil)
		}
		if _, err := q.Acquire(t.Context(), request("n")); err == nil {
			t.Fatal("granted by nodes that are down")
		}
		time.Sleep(time.Second)
		for _, s := range all {
			s.set(nil, nil)
		}
		time.Sleep(10 * time.Second)
		mustAcquire(t, q, request("n"))
		time.Sleep(25 * time.Second)
		if _, err := join(t, all, quorum.Options{}, 1, 2, 3); err == nil {
			t.Error("a list that does not fit was accepted while a lease of the other one is held")
		}
	})
}

// A mute node does not list its locks for a time.
type mute struct {
	locatedServer
	silent *atomic.Bool
}

func (m mute) List(ctx context.Context, q store.Query) (store.Page, error) {
	if m.silent.Load() {
		<-ctx.Done()
		return store.Page{}, ctx.Err()
	}
	return m.locatedServer.List(ctx, q)
}

// A node that fails does not make two lists fit. When it is back, and the other list is no longer in use, the
// client goes on.
func TestListThatDoesNotFitIsRefusedWhileANodeIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		var silent atomic.Bool
		nodes := nodesOn(all, 0, 1, 2)
		nodes[0].Store = mute{locatedServer{all[0]}, &silent}
		q := openQuorum(t, nodes, quorum.Options{})
		defer q.Close()
		if _, err := join(t, all, quorum.Options{}, 1, 2, 3); err != nil { // q has told nothing yet
			t.Fatal(err)
		}
		refused := func() bool {
			for range 2 { // the first call looks at the lists
				q.Acquire(t.Context(), request("first"))
				time.Sleep(time.Second)
			}
			_, err := q.Acquire(t.Context(), request("n"))
			return errors.Is(err, store.ErrInvalid)
		}
		if !refused() {
			t.Fatal("a list that does not fit was accepted")
		}
		silent.Store(true)
		time.Sleep(31 * time.Second)
		if !refused() {
			t.Error("a list that does not fit was accepted when a node did not answer")
		}
		silent.Store(false)
		time.Sleep(2 * time.Minute)
		if refused() {
			t.Error("the list is refused, although no other one is in use")
		}
	})
}

// A node has restarted long ago, and another one begins to hang. The first request after that reads the TTLs
// of other clients, and is granted.
func TestNodeThatHangsDoesNotKeepAnotherOneFromCounting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		var silent atomic.Bool
		nodes := []quorum.Node{{Name: "node0", Store: mute{locatedServer{all[0]}, &silent}}}
		for i, s := range all[1:] {
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i+1), Store: locatedServer{s}})
		}
		q := openQuorum(t, nodes, quorum.Options{})
		defer q.Close()
		if !granted(t, q) {
			t.Fatal("not granted before")
		}
		time.Sleep(time.Hour)
		all[1].restart("run again", time.Hour/2)
		all[0].set(lose(), nil)
		silent.Store(true)
		if _, err := q.Acquire(t.Context(), request("n")); err != nil {
			t.Errorf("two nodes answer: %v", err)
		}
	})
}

func TestAListOfNodesInALaterFormatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		newer := request("holdfast:quorum:clients")
		newer.Mode, newer.Owner, newer.Meta = store.Shared, "newer program", "2 something"
		if answer, err := all[0].Acquire(t.Context(), newer); err != nil || !answer.Granted() {
			t.Fatal(answer, err)
		}
		_, err := join(t, all, quorum.Options{}, 0, 1, 2)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "newer program") || !strings.Contains(err.Error(), "update this program") {
			t.Errorf("%v; want an ErrInvalid that says what to do", err)
		}
	})
}

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

	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// hosts returns servers that several clients use.
func hosts(n int) (all []*server) {
	for i, g := range newGates(n) {
		g.features = store.FeatureHosts
		all = append(all, &server{gate: g, id: fmt.Sprint("run", i), uptime: time.Hour})
	}
	return all
}

// seenAs returns the same servers as another client sees them: faults and restarts of one are unknown to the other.
func seenAs(all []*server) (own []*server) {
	own = hosts(len(all))
	for i, s := range all {
		own[i].Store = s.Store
	}
	return own
}

// empty ends a lease at some servers, as if they had lost their data.
func empty(t *testing.T, req store.Request, servers ...*server) {
	t.Helper()
	for _, s := range servers {
		s.Store.Leave(t.Context(), req.Name, req.ID)
	}
}

// use opens a quorum of all servers, and makes no call.
func use(t *testing.T, all []*server) *quorum.Store {
	t.Helper()
	return openQuorum(t, named(all), quorum.Options{})
}

// join opens a quorum of some of the servers for one more client, which makes a call.
func join(t *testing.T, all []*server, opts quorum.Options, indexes ...int) (*quorum.Store, error) {
	t.Helper()
	var nodes []quorum.Node
	for _, i := range indexes {
		nodes = append(nodes, named(all)[i])
	}
	opts.Report = func(string, error) {}
	q, err := quorum.New(t.Context(), nodes, opts)
	if err == nil {
		t.Cleanup(func() { q.Close() })
		req := request("first")
		q.Acquire(t.Context(), req)
		q.Leave(t.Context(), req.Name, req.ID)
	}
	return q, err
}

func mustJoin(t *testing.T, all []*server, opts quorum.Options, indexes ...int) *quorum.Store {
	t.Helper()
	q, err := join(t, all, opts, indexes...)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// wantMisfit opens a quorum of some of the servers, whose list must be refused.
func wantMisfit(t *testing.T, all []*server, opts quorum.Options, indexes ...int) {
	t.Helper()
	if _, err := join(t, all, opts, indexes...); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("error %v, want that the list is refused", err)
	}
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
		run(t, test.name, func(t *testing.T) {
			all := hosts(6)
			mustJoin(t, all, quorum.Options{}, test.first...)
			synctest.Wait() // until all nodes are told
			_, err := join(t, all, quorum.Options{}, test.next...)
			if (err == nil) != test.fits {
				t.Fatalf("error %v", err)
			}
			if err != nil && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "node0,node1,node2") || !strings.Contains(err.Error(), "add the new one")) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A client that knows the servers under other names may have ended before it told all of them.
func TestListThatWasNotToldToAllNodesFits(t *testing.T) {
	for _, late := range []bool{false, true} {
		run(t, fmt.Sprint("a node is reached later: ", late), func(t *testing.T) {
			all := hosts(3)
			rename := func(name string, all []*server) (nodes []quorum.Node) {
				for i, s := range all {
					nodes = append(nodes, quorum.Node{Name: fmt.Sprint(name, i), Store: s})
				}
				return nodes
			}
			own := seenAs(all)
			if own[2].set(only(down, "Acquire"), nil); late {
				own[2].set(down, nil)
			}
			mustAcquire(t, openQuorum(t, rename("host", own), quorum.Options{}), request("n"))
			synctest.Wait()
			two := openQuorum(t, rename("address", all), quorum.Options{})
			mustAcquire(t, two, request("another"))
		})
	}
}

// A list that does not fit is refused even if the other client has not reached all of its nodes.
func TestListThatDoesNotFitIsRefusedIfANodeOfTheOtherWasNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		own := seenAs(all[:3])
		own[2].set(down, nil)
		mustAcquire(t, use(t, own), request("n"))
		wantMisfit(t, all, quorum.Options{}, 1, 2, 3)
	})
}

// A program was given a list that does not fit while another program could not reach the node that
// only its own list has.
func TestNodeThatIsReachedLaterDoesNotCountIfAnotherListDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		open := func(names string, indexes ...int) ([]*server, *quorum.Store) {
			own := seenAs(all)
			own[3].set(down, nil)
			var nodes []quorum.Node
			for _, i := range indexes {
				nodes = append(nodes, quorum.Node{Name: fmt.Sprint(names, i), Store: own[i]})
			}
			return own, openQuorum(t, nodes, quorum.Options{})
		}
		ownA, a := open("host", 0, 1, 3)
		mustAcquire(t, a, request("first"))
		synctest.Wait()
		ownB, b := open("address", 0, 1, 2) // the node that was not reached may be the one that the other list lacks
		mustAcquire(t, b, request("second"))
		synctest.Wait()
		ownA[1].set(only(down, "Acquire"), nil)
		ownB[0].set(only(down, "Acquire"), nil)
		mustAcquire(t, b, request("n"))
		synctest.Wait()
		ownA[3].set(nil, nil)
		time.Sleep(time.Second) // until it is tried again
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
		all[2].set(down, nil)
		q := use(t, all[:3])
		for range 2 { // the second call looks at the lists of others
			mustAcquire(t, q, request("n"+store.NewID().String()))
			time.Sleep(time.Second)
		}
		all[2].set(nil, nil)
		time.Sleep(5 * time.Second)
		mustAcquire(t, q, request("reached"))
		time.Sleep(time.Second)
		wantMisfit(t, all, quorum.Options{}, 0, 1, 3)
	})
}

// Without a restart delay, nodes count whose servers cannot be identified. And a server may have no identity.
func TestListThatDoesNotFitIsRefusedIfServersCannotBeIdentified(t *testing.T) {
	for _, nameless := range []bool{false, true} {
		run(t, fmt.Sprint("they have no identity: ", nameless), func(t *testing.T) {
			all := hosts(4)
			delay := time.Duration(-1)
			setAll(all, only(down, "Server"), nil)
			if nameless {
				delay = 0
				setAll(all, nil, nil)
				for _, s := range all {
					s.restart("", time.Hour)
				}
			}
			mustAcquire(t, mustJoin(t, all, quorum.Options{RestartDelay: delay}, 0, 1, 2), request("n"))
			synctest.Wait()
			wantMisfit(t, all, quorum.Options{RestartDelay: delay}, 1, 2, 3)
		})
	}
}

// The records of a client that has ended do not stay.
func TestListOfAClientThatHasEndedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		q := mustJoin(t, all, quorum.Options{}, 0, 1, 2)
		req := request("n")
		mustAcquire(t, q, req)
		for range 10 { // the list stays known while the client is used
			time.Sleep(20 * time.Second)
			mustRenew(t, q, req)
		}
		time.Sleep(40 * time.Second)
		wantMisfit(t, all, quorum.Options{}, 1, 2, 3)
		time.Sleep(req.TTL + time.Minute - 40*time.Second) // when a node may be removed, says the documentation
		mustJoin(t, all, quorum.Options{}, 1, 2, 3)
	})
}

// Two clients that start at the same time do not see each other's list at once.
func TestClientFindsOutThatAnotherListDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		two := make([]*quorum.Store, 2)
		setAll(all, only(slow(10*time.Millisecond), "Acquire"), nil)
		held := request("held") // by the first call, because the next one looks at the lists
		first := func(q *quorum.Store, req store.Request) {
			if a, err := q.Acquire(t.Context(), req); err != nil || !a.Granted() {
				t.Errorf("%+v, %v", a, err)
			}
		}
		var calls sync.WaitGroup
		for i := range two {
			two[i] = openQuorum(t, named(all)[i:i+3], quorum.Options{})
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
		short := mustJoin(t, all, quorum.Options{}, 0, 1, 2)
		other := mustJoin(t, all, quorum.Options{}, 0, 1, 2)
		time.Sleep(time.Hour) // records of what was used before are over
		wantGranted(t, short, true, "at first")
		req := request("probe")
		req.TTL = long
		mustAcquire(t, other, req)
		synctest.Wait()
		all[2].set(down, nil) // the lease is at nodes 0 and 1, and node 0 restarts empty
		empty(t, req, all[0], all[2])
		all[0].restart("run again", 0)
		all[2].set(nil, nil)
		for range 9 {
			time.Sleep(time.Minute)
			wantGranted(t, short, false, "two holders")
			empty(t, req, all[0], all[2])
		}
	})
}

// A client with a fixed restart delay refuses longer TTLs. Its record lives for longer than they do.
func TestListIsKnownWhileALeaseIsHeldWithAFixedRestartDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		q := mustJoin(t, all, quorum.Options{RestartDelay: 30 * time.Second}, 0, 1, 2)
		mustAcquire(t, q, request("first of the period"))
		synctest.Wait()
		time.Sleep(29 * time.Second)
		mustAcquire(t, q, request("n"))
		time.Sleep(20 * time.Second)
		wantMisfit(t, all, quorum.Options{}, 1, 2, 3)
	})
}

// The first calls of a client do not tell the nodes its TTL one after the other, and are cancelled
// meanwhile if their contexts end.
func TestFirstCallsDoNotWaitForEachOther(t *testing.T) {
	const trip = 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		setAll(all, only(slow(trip), "Acquire", "Leave"), nil)
		q := use(t, all)
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

// While another client was idle, a client began to use a larger TTL, and a node restarted without its
// lease. The idle client makes two calls then. The second one finds the server identified, while the
// first one still asks for the TTLs of others.
func TestNodeDoesNotCountWhileTheTTLsOfOtherClientsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		setAll(all, only(slow(5*time.Millisecond), "Lookup"), nil)
		idle := use(t, all)
		wantGranted(t, idle, true, "before the restart")
		time.Sleep(time.Second)
		other := mustJoin(t, all, quorum.Options{}, 0, 1, 2)
		req := request("probe")
		req.TTL = 10 * time.Minute
		mustAcquire(t, other, req)
		synctest.Wait()
		empty(t, req, all[0], all[2]) // the lease was at nodes 0 and 1, and node 0 restarts empty
		time.Sleep(40 * time.Second)
		all[0].restart("run again", 39*time.Second)
		go func() {
			if _, err := idle.Acquire(t.Context(), request("another")); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Millisecond) // less than a lookup takes
		wantGranted(t, idle, false, "two holders")
	})
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
		setAll(all, hang(forever), nil)
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
		wantGranted(t, other, true, "before")
		req := request("probe")
		req.TTL = 10 * time.Minute
		setAll(all, down, nil)
		for range 2 {
			if _, err := q.Acquire(t.Context(), req); err == nil {
				t.Fatal("granted by nodes that are down")
			}
			time.Sleep(time.Second)
		}
		setAll(all[:2], nil, nil)
		mustAcquire(t, q, req)
		time.Sleep(5 * time.Second)
		all[2].set(nil, nil)
		empty(t, req, all[0])
		time.Sleep(time.Minute)
		all[0].restart("run again", time.Minute)
		wantGranted(t, other, false, "two holders")
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
		setAll(all, down, nil)
		if _, err := q.Acquire(t.Context(), request("n")); err == nil {
			t.Fatal("granted by nodes that are down")
		}
		time.Sleep(time.Second)
		setAll(all, nil, nil)
		time.Sleep(10 * time.Second)
		mustAcquire(t, q, request("n"))
		time.Sleep(25 * time.Second)
		wantMisfit(t, all, quorum.Options{}, 1, 2, 3)
	})
}

// A node that fails does not make two lists fit. When it is back, and the other list is no longer in use, the
// client goes on.
func TestListThatDoesNotFitIsRefusedWhileANodeIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(4)
		q := use(t, all[:3])
		mustJoin(t, all, quorum.Options{}, 1, 2, 3) // q has told nothing yet
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
		all[0].set(only(lose, "Lookup"), nil)
		time.Sleep(31 * time.Second)
		if !refused() {
			t.Error("a list that does not fit was accepted when a node did not answer")
		}
		all[0].set(nil, nil)
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
		q := use(t, all)
		wantGranted(t, q, true, "before")
		time.Sleep(time.Hour)
		all[1].restart("run again", time.Hour/2)
		all[0].set(lose, nil)
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

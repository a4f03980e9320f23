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

// hostTests are tests with some servers, each in a bubble of its own.
type hostTests map[string]func(t *testing.T, all []*server)

func (all hostTests) run(t *testing.T, n int) {
	for name, test := range all {
		run(t, name, func(t *testing.T) { test(t, hosts(n)) })
	}
}

// seenAs returns the same servers as another client sees them: faults and restarts of one are unknown to the other.
func seenAs(all []*server) (own []*server) {
	own = hosts(len(all))
	for i, s := range all {
		own[i].Store = s.Store
	}
	return own
}

// pick returns some of the servers as nodes, which have the names that a client knows them by.
func pick(names string, all []*server, indexes ...int) (nodes []quorum.Node) {
	for _, i := range indexes {
		nodes = append(nodes, quorum.Node{Name: fmt.Sprint(names, i), Store: all[i]})
	}
	return nodes
}

// join opens a quorum for one more client, which makes a call.
func join(t *testing.T, nodes []quorum.Node, opts quorum.Options) (*quorum.Store, error) {
	t.Helper()
	opts.Report = func(string, error) {}
	q, err := quorum.New(t.Context(), nodes, opts)
	if err == nil {
		t.Cleanup(func() { q.Close() })
		granted(t, q)
	}
	return q, err
}

func mustJoin(t *testing.T, nodes []quorum.Node, opts quorum.Options) *quorum.Store {
	t.Helper()
	q, err := join(t, nodes, opts)
	must(t, err)
	return q
}

func wantMisfit(t *testing.T, nodes []quorum.Node, opts quorum.Options) {
	t.Helper()
	if _, err := join(t, nodes, opts); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("error %v, want that the list is refused", err)
	}
}

// The first client may have ended before it told the last one of its nodes, or reached it, and the next one may
// know the servers under other names.
func TestClientsWhoseListsDoNotFitAreRefused(t *testing.T) {
	for _, test := range []struct {
		name        string
		first, next []int
		fits        bool
		names       string
		fault       fault // of the last node for the first client
	}{
		{"another order", []int{0, 1, 2}, []int{2, 0, 1}, true, "node", nil},
		{"a node is added", []int{0, 1, 2}, []int{0, 1, 2, 3}, true, "node", nil},
		{"a node is removed", []int{0, 1, 2, 3}, []int{1, 2, 3}, true, "node", nil},
		{"other servers", []int{0, 1, 2}, []int{3, 4, 5}, true, "node", nil},
		{"other names, a node was not told", []int{0, 1, 2}, []int{0, 1, 2}, true, "address", only(down, "Acquire")},
		{"other names, a node was not reached", []int{0, 1, 2}, []int{0, 1, 2}, true, "address", down},
		{"a node is replaced", []int{0, 1, 2}, []int{1, 2, 3}, false, "node", nil},
		{"a node is replaced, another one was not reached", []int{0, 1, 2}, []int{1, 2, 3}, false, "node", down},
		{"two nodes are added", []int{0, 1, 2}, []int{0, 1, 2, 3, 4}, false, "node", nil},
		{"one node in common", []int{0, 1, 2}, []int{2, 3, 4}, false, "node", nil},
	} {
		run(t, test.name, func(t *testing.T) {
			all := hosts(6)
			own := seenAs(all)
			own[len(test.first)-1].set(test.fault, nil)
			mustJoin(t, pick("node", own, test.first...), quorum.Options{})
			synctest.Wait() // until all nodes are told
			_, err := join(t, pick(test.names, all, test.next...), quorum.Options{})
			if (err == nil) != test.fits {
				t.Fatalf("error %v", err)
			}
			if err != nil && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "node0,node1,node2") || !strings.Contains(err.Error(), "add the new one")) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestLists(t *testing.T) {
	hostTests{
		// A program was given a list that does not fit while another program could not reach the node that
		// only its own list has.
		"a node that is reached later does not count if another list does not fit": func(t *testing.T, all []*server) {
			open := func(names string, indexes ...int) ([]*server, *quorum.Store) {
				own := seenAs(all)
				own[3].set(down, nil)
				return own, openQuorum(t, pick(names, own, indexes...), quorum.Options{})
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
				if out, err := a.Acquire(t.Context(), request("n")); err == nil && out.Granted() {
					t.Errorf("call %d is granted, and another client holds the name", k)
				}
				synctest.Wait()
			}
		},
		// A client tells the others at once that it has reached a further server of its list.
		"a list that does not fit is refused when a node was reached later": func(t *testing.T, all []*server) {
			all[2].set(down, nil)
			q := openQuorum(t, named(all[:3]), quorum.Options{})
			for range 2 { // the second call looks at the lists of others
				mustAcquire(t, q, request("n"+store.NewID().String()))
				time.Sleep(time.Second)
			}
			all[2].set(nil, nil)
			time.Sleep(5 * time.Second)
			mustAcquire(t, q, request("reached"))
			time.Sleep(time.Second)
			wantMisfit(t, pick("node", all, 0, 1, 3), quorum.Options{})
		},
		"the list of a client that has ended is forgotten": func(t *testing.T, all []*server) {
			q := mustJoin(t, pick("node", all, 0, 1, 2), quorum.Options{})
			req := request("n")
			mustAcquire(t, q, req)
			for range 10 { // the list stays known while the client is used
				time.Sleep(20 * time.Second)
				mustRenew(t, q, req)
			}
			time.Sleep(40 * time.Second)
			wantMisfit(t, pick("node", all, 1, 2, 3), quorum.Options{})
			time.Sleep(req.TTL + time.Minute - 40*time.Second) // when a node may be removed, says the documentation
			mustJoin(t, pick("node", all, 1, 2, 3), quorum.Options{})
		},
		// Two clients that start at the same time do not see each other's list at once.
		"a client finds out that another list does not fit": func(t *testing.T, all []*server) {
			setAll(all, only(slow(10*time.Millisecond), "Acquire"), nil)
			one, two := openQuorum(t, named(all[:3]), quorum.Options{}), openQuorum(t, named(all)[1:], quorum.Options{})
			held := request("held") // by the first call, because the next one looks at the lists
			var calls sync.WaitGroup
			calls.Go(func() { mustAcquire(t, one, held) })
			calls.Go(func() { mustAcquire(t, two, request("other")) })
			calls.Wait()
			time.Sleep(25 * time.Second)
			mustRenew(t, one, held)
			time.Sleep(10 * time.Second)
			mustRenew(t, one, held) // looks at the lists
			time.Sleep(time.Second)
			if _, err := one.Acquire(t.Context(), request("n")); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%v, want ErrInvalid", err)
			}
			mustRenew(t, one, held)
			mustRelease(t, one, held)
		},
		// A client cannot repeat what it told the nodes. It does so with its next call, and not a period later.
		"a list that could not be told is told with the next call": func(t *testing.T, all []*server) {
			q := openQuorum(t, named(all[:3]), quorum.Options{})
			told := request("told")
			mustAcquire(t, q, told)
			mustRelease(t, q, told)
			mustAcquire(t, q, request("repeated"))
			synctest.Wait()
			time.Sleep(31 * time.Second)
			setAll(all, down, nil)
			mustFail(t, q, request("n"))
			time.Sleep(time.Second)
			setAll(all, nil, nil)
			time.Sleep(10 * time.Second)
			mustAcquire(t, q, request("n"))
			time.Sleep(25 * time.Second)
			wantMisfit(t, pick("node", all, 1, 2, 3), quorum.Options{})
		},
		// A node that fails does not make two lists fit. When it is back, and the other list is no longer in use, the
		// client goes on.
		"a list that does not fit is refused while a node is silent": func(t *testing.T, all []*server) {
			q := openQuorum(t, named(all[:3]), quorum.Options{})
			mustJoin(t, pick("node", all, 1, 2, 3), quorum.Options{}) // q has told nothing yet
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
		},
	}.run(t, 4)
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
			mustAcquire(t, mustJoin(t, pick("node", all, 0, 1, 2), quorum.Options{RestartDelay: delay}), request("n"))
			synctest.Wait()
			wantMisfit(t, pick("node", all, 1, 2, 3), quorum.Options{RestartDelay: delay})
		})
	}
}

func TestPeers(t *testing.T) {
	hostTests{
		// The first calls of a client do not tell the nodes its TTL one after the other, and are cancelled
		// meanwhile if their contexts end.
		"first calls do not wait for each other": func(t *testing.T, all []*server) {
			const trip = 50 * time.Millisecond
			setAll(all, only(slow(trip), "Acquire", "Leave"), nil)
			q := openQuorum(t, named(all), quorum.Options{})
			var calls sync.WaitGroup
			for i := range 20 {
				calls.Go(func() {
					ctx, limit, want := t.Context(), 4*trip, error(nil)
					if i%2 == 1 {
						var cancel context.CancelFunc
						limit, want = trip/2, context.DeadlineExceeded
						ctx, cancel = context.WithTimeout(ctx, limit)
						defer cancel()
					}
					within(t, limit, func() {
						if _, err := q.Acquire(ctx, request(fmt.Sprint(i))); !errors.Is(err, want) {
							t.Errorf("call %d: %v, want %v", i, err, want)
						}
					})
				})
			}
			calls.Wait()
		},
		// A node that restarts may have forgotten a lease of another client, with a TTL that is longer than
		// those of this client. The first call after the restart reads the TTLs of others. Another call finds the
		// server identified meanwhile.
		"a node does not count before the largest TTL of other clients is over": func(t *testing.T, all []*server) {
			short := mustJoin(t, pick("node", all, 0, 1, 2), quorum.Options{})
			other := mustJoin(t, pick("node", all, 0, 1, 2), quorum.Options{})
			time.Sleep(time.Hour) // records of what was used before are over
			wantGranted(t, short, true, "at first")
			req := request("probe")
			req.TTL = 10 * time.Minute
			setAll(all, down, nil)
			for range 2 {
				mustFail(t, other, req) // by nodes that are down
				time.Sleep(time.Second)
			}
			setAll(all, nil, nil)
			mustAcquire(t, other, req) // not before it could tell the nodes its TTL
			synctest.Wait()
			empty := func() {
				all[0].Store.Leave(t.Context(), req.Name, req.ID)
				all[2].Store.Leave(t.Context(), req.Name, req.ID)
			}
			empty() // the lease is at nodes 0 and 1, and node 0 restarts empty
			all[0].restart("run again", 0)
			setAll(all, only(slow(5*time.Millisecond), "Lookup"), nil)
			time.Sleep(time.Minute)
			go short.Acquire(t.Context(), request("another"))
			time.Sleep(time.Millisecond) // less than a lookup takes
			for range 9 {
				wantGranted(t, short, false, "two holders")
				empty()
				time.Sleep(time.Minute)
			}
		},
		// A node has restarted long ago, and another one begins to hang. The first request after that reads the TTLs
		// of other clients, and is granted.
		"a node that hangs does not keep another one from counting": func(t *testing.T, all []*server) {
			q := openQuorum(t, named(all), quorum.Options{})
			wantGranted(t, q, true, "before")
			time.Sleep(time.Hour)
			all[1].restart("run again", time.Hour/2)
			all[0].set(lose, nil)
			wantGranted(t, q, true, "two nodes answer")
		},
		"a list of nodes in a later format is refused": func(t *testing.T, all []*server) {
			newer := request("holdfast:quorum:clients")
			newer.Mode, newer.Owner, newer.Meta = store.Shared, "newer program", "2 something"
			mustAcquire(t, all[0], newer)
			_, err := join(t, pick("node", all, 0, 1, 2), quorum.Options{})
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "newer program") || !strings.Contains(err.Error(), "update this program") {
				t.Errorf("%v; want an ErrInvalid that says what to do", err)
			}
		},
	}.run(t, 3)
}

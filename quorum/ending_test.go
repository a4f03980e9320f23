package quorum_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// ends are the calls that end a lease.
var ends = map[string]func(q *quorum.Store, id store.ID) error{
	"Break": func(q *quorum.Store, id store.ID) error { return q.Break(context.Background(), "n", id) },
	"Leave": func(q *quorum.Store, id store.ID) error { return q.Leave(context.Background(), "n", id) },
	"Release": func(q *quorum.Store, id store.ID) error {
		return q.Release(context.Background(), "n", id, store.Keep{})
	},
}

// wantExcluded checks that a client of its own is not granted the name.
func wantExcluded(t *testing.T, nodes []*gate, holder store.Answer) {
	t.Helper()
	other := another(t, nodes, plain)
	if answer, err := other.Acquire(t.Context(), request("n")); err == nil && answer.Granted() {
		t.Errorf("granted with token %d beside a holder with token %d that has %v left", answer.Token, holder.Token, holder.TTL)
	}
}

// While a release passes the votes on, they are no longer those of the lease. Another call of the same
// client that ends the lease must not end them.
func TestLeaseIsEndedAgainWhileItsVotesArePassedOn(t *testing.T) {
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
				a, b, c := queued("n"), queued("n"), queued("n")
				chain(t, q, a, b, c)
				mustAcquire(t, q, b)
				passes := q.Passes()
				bell := nodes[q.Order("n", 0)]
				bell.set(func(_ context.Context, call string) error {
					if call == "Pass" {
						time.Sleep(20 * time.Millisecond)
					}
					return nil
				}, nil)
				released := make(chan error)
				go func() { released <- q.Release(t.Context(), "n", b.ID, store.Keep{}) }()
				time.Sleep(time.Millisecond)
				if err := end(q, b.ID); err != nil && !errors.Is(err, store.ErrNotHeld) {
					t.Error(err)
				}
				if err := <-released; err != nil || q.Passes() != passes+1 {
					t.Errorf("Release: %v, %d passed on, want 1", err, q.Passes()-passes)
				}
				bell.set(nil, nil)
				wantExcluded(t, nodes, mustAcquire(t, q, c))
			})
		})
	}
}

// A young is a node whose server has restarted a second ago.
type young struct{ *gate }

func (*young) Connections() uint64 { return 1 }

func (*young) Server(context.Context) (quorum.Server, error) {
	return quorum.Server{ID: "restarted", Uptime: time.Second}, nil
}

// The bell has lost its data and has given its vote to a request that has no other. That request is
// neither listed as the holder, nor does its end end the votes of the holder.
func TestRequestWithTheVoteOfABellThatRestartedIsNotTheHolder(t *testing.T) {
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
				a, b, c := queued("n"), queued("n"), queued("n")
				chain(t, q, a, b, c)
				got := mustAcquire(t, q, b)
				bell := nodes[q.Order("n", 0)]
				bell.Store = memstore.New()
				candidate := request("n")
				if answer, err := bell.Store.Acquire(t.Context(), candidate); err != nil || !answer.Granted() {
					t.Fatalf("%+v, %v", answer, err)
				}
				i := -1
				p := another(t, nodes, func(g *gate) store.Store {
					if i++; i == q.Order("n", 0) {
						return &young{g}
					}
					return g
				})
				wantNotListed(t, p, candidate.ID)
				end(p, candidate.ID)
				wantExcluded(t, nodes, got)
			})
		})
	}
}

// The bell has lost its data. A request that has the vote of a node that never voted for the holder is
// neither listed as the holder, nor does its end end the votes of the holder.
func TestRequestWithTheVoteOfAnotherNodeIsNotTheHolder(t *testing.T) {
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
				bell, k := q.Order("n", 0), q.Order("n", 4)
				h, a, b, candidate := request("n"), queued("n"), queued("n"), request("n")
				mustAcquire(t, q, h)
				crowd(t, q)
				mustRefuse(t, q, a)
				mustRefuse(t, q, b)
				if err := q.Release(t.Context(), "n", h.ID, store.Keep{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if answer, err := nodes[k].Store.Acquire(t.Context(), candidate); err != nil || !answer.Granted() {
					t.Fatalf("%+v, %v", answer, err)
				}
				got := mustAcquire(t, q, a)
				synctest.Wait()
				nodes[bell].Store = memstore.New()
				restarted := func() *quorum.Store {
					i := -1
					return another(t, nodes, func(g *gate) store.Store {
						if i++; i == bell {
							return &young{g}
						}
						return g
					})
				}
				p := restarted()
				wantNotListed(t, p, candidate.ID)
				end(p, candidate.ID)
				if answer, err := restarted().Acquire(t.Context(), request("n")); err == nil && answer.Granted() {
					t.Errorf("granted with token %d beside a holder with token %d that has %v left", answer.Token, got.Token, got.TTL)
				}
			})
		})
	}
}

// wantNotListed checks that the name is listed, with other holders.
func wantNotListed(t *testing.T, q *quorum.Store, id store.ID) {
	t.Helper()
	page, err := q.List(t.Context(), store.Query{Name: "n"})
	if err != nil || len(page.Locks) != 1 {
		t.Errorf("listed %+v, %v", page, err)
	}
	for _, lock := range page.Locks {
		for _, h := range lock.Holders {
			if h.ID == id {
				t.Errorf("listed as the holder: %+v", h)
			}
		}
	}
}

// A listing may contain the identity of votes that are passed on. No call with it affects the holder.
func TestIdentityOfVotesThatArePassedOnIsThatOfNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		a, b, c := queued("n"), queued("n"), queued("n")
		chain(t, q, a, b, c)
		got := mustAcquire(t, q, b)
		node := nodes[q.Order("n", 1)]
		shared := holders(t, node, "n")[0]
		if shared == b.ID {
			t.Fatal("the votes already have the identity of the lease")
		}
		p := another(t, nodes, plain)
		for how, end := range ends {
			if err := end(p, shared); !errors.Is(err, store.ErrNotHeld) && how != "Leave" {
				t.Errorf("%s: %v, want ErrNotHeld", how, err)
			}
		}
		for _, tokens := range []int{0, 5} {
			out, err := p.Renew(t.Context(), []store.Renewal{{Name: "n", ID: shared, TTL: time.Hour, Mode: store.Exclusive, Tokens: tokens}})
			if err != nil || out[0].Status != store.Gone {
				t.Errorf("Renew: %+v, %v, want that it is gone", out, err)
			}
		}
		if ids := holders(t, node, "n"); len(ids) != 1 || ids[0] != shared {
			t.Errorf("votes %v, want %v", ids, shared)
		}
		wantExcluded(t, nodes, got)
	})
}

// A meddler is a node that calls before when a vote is to be ended.
type meddler struct {
	*gate
	before func()
}

func (m *meddler) Break(ctx context.Context, name string, id store.ID) error {
	m.before()
	return m.gate.Store.Break(ctx, name, id)
}

func (m *meddler) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	m.before()
	return m.gate.Store.Release(ctx, name, id, keep)
}

// A node that is not the bell has a vote for the holder under its own identity, besides the bell. The
// holder passes its votes on while another client ends the lease. That node must not be taken for the
// bell.
func TestNodeWithAVoteOfTheHolderIsNotTheBell(t *testing.T) {
	for _, how := range []string{"Break", "Release"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
				bell, k := q.Order("n", 0), 4
				if bell == k {
					t.Fatal("the bell must not be the last node")
				}
				a, b, c := queued("n"), queued("n"), queued("n")
				chain(t, q, a, b, c)
				got := mustAcquire(t, q, b)
				nodes[k].Store.Leave(t.Context(), "n", holders(t, nodes[k], "n")[0]) // it lost its data
				if answer, err := nodes[k].Store.Acquire(t.Context(), b); err != nil || !answer.Granted() {
					t.Fatalf("%+v, %v", answer, err)
				}
				var once sync.Once
				p := another(t, nodes, func(g *gate) store.Store {
					return &meddler{g, func() {
						once.Do(func() {
							if err := q.Release(t.Context(), "n", b.ID, store.Keep{}); err != nil || q.Passes() != 2 {
								t.Errorf("Release: %v, %d passed on, want 2", err, q.Passes())
							}
							got = mustAcquire(t, q, c)
						})
					}}
				})
				ends[how](p, b.ID)
				wantExcluded(t, nodes, got)
			})
		})
	}
}

// A waiter gets votes that are passed on while it also asks the other nodes, one of which has lost its
// data. The vote of that node is not left behind, whatever the waiter knows of it.
func TestWaiterThatAsksAllNodesLeavesNoVoteBehind(t *testing.T) {
	for _, how := range []string{"late", "young", "reply lost"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
				bell, k := q.Order("n", 0), q.Order("n", 1)
				i, own := -1, make([]*gate, len(nodes))
				p := another(t, nodes, func(g *gate) store.Store {
					i++
					if own[i] = g; how == "young" && i == k {
						return &young{g}
					}
					return g
				})
				h, a, b := request("n"), queued("n"), queued("n")
				b.TTL = time.Hour
				mustAcquire(t, q, h)
				crowd(t, q)
				crowd(t, p)
				mustRefuse(t, q, a)
				mustRefuse(t, p, b)
				time.Sleep(1240 * time.Millisecond) // so long that they ask the other nodes next time
				mustRefuse(t, q, a)
				mustRefuse(t, p, b)
				if err := q.Release(t.Context(), "n", h.ID, store.Keep{}); err != nil {
					t.Fatal(err)
				}
				mustAcquire(t, q, a)
				synctest.Wait()
				time.Sleep(5 * time.Millisecond)
				if err := q.Release(t.Context(), "n", a.ID, store.Keep{}); err != nil || q.Passes() != 1 {
					t.Fatal(err, q.Passes())
				}
				time.Sleep(10 * time.Millisecond)
				nodes[k].Store.Leave(t.Context(), "n", holders(t, nodes[k], "n")[0]) // it lost its data
				slow := func(context.Context, string) error { time.Sleep(3 * time.Millisecond); return nil }
				switch {
				case how == "late":
					own[k].set(slow, nil)
				default:
					own[bell].set(slow, nil)
				}
				if how == "reply lost" {
					own[k].set(nil, func(_ context.Context, call string) error {
						if call == "Acquire" {
							return errDown
						}
						return nil
					})
				}
				for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
					if answer, err := p.Acquire(t.Context(), b); err == nil && answer.Granted() {
						break
					} else if time.Since(begin) > time.Minute {
						t.Fatalf("%+v, %v", answer, err)
					}
				}
				time.Sleep(4 * time.Millisecond)
				if err := p.Release(t.Context(), "n", b.ID, store.Keep{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				for i, n := range nodes {
					if ids := holders(t, n, "n"); len(ids) > 0 {
						t.Errorf("node %d has votes for %v ten seconds after the release", i, ids)
					}
				}
			})
		})
	}
}

// A hung is a node that does not answer calls that end votes.
type hung struct{ *gate }

func (*hung) Release(ctx context.Context, _ string, _ store.ID, _ store.Keep) error {
	<-ctx.Done()
	return ctx.Err()
}

func (*hung) Break(ctx context.Context, _ string, _ store.ID) error {
	<-ctx.Done()
	return ctx.Err()
}

// An ageless is a node whose uptime is unknown.
type ageless struct{ young }

func (*ageless) Server(context.Context) (quorum.Server, error) { return quorum.Server{}, errDown }

// Another client ends a lease and does not know whether it has ended. It must report neither success
// nor that there was no lease.
func TestAnotherHandleDoesNotReportAnEndThatIsUnknown(t *testing.T) {
	for name, wrap := range map[string]func(place int, g *gate) store.Store{
		"the last node does not list": func(place int, g *gate) store.Store {
			if place == 2 {
				return &deafTo{g, []string{"List"}}
			}
			return g
		},
		"the last node does not answer": func(place int, g *gate) store.Store {
			if place == 2 {
				return &deafTo{g, []string{"List", "Release"}}
			}
			return g
		},
		"all nodes but the bell hang": func(place int, g *gate) store.Store {
			if place != 0 {
				return &hung{g}
			}
			return g
		},
		"the uptime of the bell is unknown": func(place int, g *gate) store.Store {
			if place == 0 {
				return &ageless{young{g}}
			}
			return g
		},
		"another request has a vote": nil,
	} {
		for _, how := range []string{"Break", "Release"} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := 3
					if wrap == nil {
						n = 5 // so that the lease has a majority without that vote
					}
					nodes, q := gates(t, n, quorum.Options{Report: func(string, error) {}})
					a, b, c := queued("n"), queued("n"), queued("n")
					chain(t, q, a, b, c)
					mustAcquire(t, q, b)
					other, last := request("n"), nodes[q.Order("n", 2)]
					if wrap == nil {
						last.Store.Leave(t.Context(), "n", holders(t, last, "n")[0])
						last.Store.Acquire(t.Context(), other)
					}
					i := -1
					p := another(t, nodes, func(g *gate) store.Store {
						i++
						for place := range nodes {
							if wrap != nil && q.Order("n", place) == i {
								return wrap(place, g)
							}
						}
						return g
					})
					err := ends[how](p, b.ID)
					last.Store.Leave(t.Context(), "n", other.ID)
					time.Sleep(5 * time.Second)
					out, renewErr := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: b.ID, TTL: b.TTL, Mode: store.Exclusive}})
					if renewErr != nil {
						t.Fatal(renewErr)
					}
					if held := out[0].Status == store.Extended; held && (err == nil || errors.Is(err, store.ErrNotHeld)) {
						t.Errorf("%s: %v, and the lease was renewed five seconds later", how, err)
					}
				})
			})
		}
	}
}

// The votes get the identity of the lease while another client releases it.
func TestAnotherHandleReleasesALeaseThatIsGettingItsVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
		a, b, c := queued("n"), queued("n"), queued("n")
		chain(t, q, a, b, c)
		mustAcquire(t, q, b)
		p := another(t, nodes, func(g *gate) store.Store { return &lateBreak{g, b.ID} })
		if err := p.Release(t.Context(), "n", b.ID, store.Keep{}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: b.ID, TTL: b.TTL, Mode: store.Exclusive}})
		if err != nil || out[0].Status != store.Gone {
			t.Errorf("Renew: %+v, %v, want that it is gone", out, err)
		}
	})
}

// A guarded is a node that does not end votes that are passed on.
type guarded struct {
	*gate
	of store.ID
}

func (g *guarded) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if id != g.of {
		return errDown
	}
	return g.Store.Release(ctx, name, id, keep)
}

// The bell has ended the lease, but the nodes with the other votes do not answer any more.
func TestAnotherHandleDoesNotReportAnEndThatAMajorityDidNotConfirm(t *testing.T) {
	for _, how := range []string{"Break", "Release"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
				a, b, c := queued("n"), queued("n"), queued("n")
				chain(t, q, a, b, c)
				mustAcquire(t, q, b)
				p := another(t, nodes, func(g *gate) store.Store { return &guarded{g, b.ID} })
				if err := ends[how](p, b.ID); err == nil || errors.Is(err, store.ErrNotHeld) {
					t.Errorf("%v, want that the nodes did not answer", err)
				}
			})
		})
	}
}

package quorum_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestConformance(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) { storetest.Run(t, harness(nodes)) })
	}
}

func TestCompare(t *testing.T) {
	for nodes, sequences := range map[int]int{3: 1000, 4: 200, 5: 200} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			h := harness(nodes)
			open := h.Open
			h.Open = func(t testing.TB) store.Store { // its calls return when nothing is left to do in the background
				s := open(t)
				return wire{s, func(_ context.Context, _ string, do func(s store.Store) error) error {
					defer synctest.Wait()
					return do(s)
				}}
			}
			storetest.Compare(t, h, storetest.CompareOptions{Sequences: sequences})
		})
	}
}

func harness(nodes int) storetest.Harness {
	url := func(i int) string { return fmt.Sprintf("memory:quorum-%d-of-%d", i, nodes) }
	return storetest.Harness{
		Around: func(t *testing.T, test func(t *testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				// These handles stand for the servers: locks outlive the connections of a test, but not the test.
				for i := range nodes {
					server := openMemory(t, url(i))
					t.Cleanup(func() { server.Close() })
				}
				test(t)
			})
		},
		Open: func(t testing.TB) store.Store {
			var all []quorum.Node
			settled := new(suites.Settled)
			for i := range nodes {
				all = append(all, quorum.Node{Name: url(i), Store: openMemory(t, url(i))})
				handle := openMemory(t, url(i))
				t.Cleanup(func() { handle.Close() })
				settled.Nodes = append(settled.Nodes, handle)
			}
			settled.Store = openQuorum(t, all, quorum.Options{})
			return settled
		},
		Residue: func(t testing.TB) (names []string) {
			for i := range nodes {
				s := openMemory(t, url(i))
				page, err := s.List(context.Background(), store.Query{Limit: 1000})
				must(t, err)
				for _, l := range page.Locks {
					names = append(names, fmt.Sprintf("node %d: %s", i, l.Name))
				}
				s.Close()
			}
			return names
		},
	}
}

// openMemory does not use the context of the test, which has ended when the test cleans up.
func openMemory(t testing.TB, url string) *memstore.Store {
	t.Helper()
	s, err := store.Open(context.Background(), url)
	must(t, err)
	return s.(*memstore.Store)
}

func openQuorum(t testing.TB, nodes []quorum.Node, opts quorum.Options) *quorum.Store {
	t.Helper()
	if opts.Report == nil {
		opts.Report = func(string, error) {}
	}
	q, err := quorum.New(context.Background(), nodes, opts)
	must(t, err)
	t.Cleanup(func() { q.Close() })
	return q
}

// A wire is a store behind something that makes its calls, disturbs them, or loses them. The calls do not
// depend on the contexts of their callers.
type wire struct {
	store.Store
	send func(ctx context.Context, call string, do func(s store.Store) error) error
}

// over makes a call through a wire. It may be executed when its caller has given up.
func over[T any](ctx context.Context, w wire, call string, do func(ctx context.Context, s store.Store) (T, error)) (v T, err error) {
	answer := new(T)
	err = w.send(ctx, call, func(s store.Store) (err error) {
		*answer, err = do(context.WithoutCancel(ctx), s)
		return err
	})
	if err == nil {
		v = *answer
	}
	return v, err
}

func (w wire) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	return over(ctx, w, "Acquire", func(ctx context.Context, s store.Store) (store.Answer, error) { return s.Acquire(ctx, req) })
}

func (w wire) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	grants = slices.Clone(grants)
	return over(ctx, w, "Renew", func(ctx context.Context, s store.Store) ([]store.Renewed, error) { return s.Renew(ctx, grants) })
}

func (w wire) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	return w.send(ctx, "Release", func(s store.Store) error { return s.Release(context.WithoutCancel(ctx), name, id, keep) })
}

func (w wire) Leave(ctx context.Context, name string, id store.ID) error {
	return w.send(ctx, "Leave", func(s store.Store) error { return s.Leave(context.WithoutCancel(ctx), name, id) })
}

func (w wire) Break(ctx context.Context, name string, id store.ID) error {
	return w.send(ctx, "Break", func(s store.Store) error { return s.Break(context.WithoutCancel(ctx), name, id) })
}

// List is called Lookup if it is about one name.
func (w wire) List(ctx context.Context, q store.Query) (store.Page, error) {
	call := "List"
	if q.Name != "" {
		call = "Lookup"
	}
	return over(ctx, w, call, func(ctx context.Context, s store.Store) (store.Page, error) { return s.List(ctx, q) })
}

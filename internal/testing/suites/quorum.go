package suites

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const settleLimit = 5 * time.Second // bounds the wait for the nodes that a call did not need

// A Settled is a quorum whose calls return when all nodes have finished, not only a majority, because the
// conformance suite looks at a store through another handle right after a call.
type Settled struct {
	store.Store
	Nodes []store.Store // other handles on the nodes
}

// Acquire waits until all nodes or none have granted the request, unless several requests compete.
func (s *Settled) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	answer, err := s.Store.Acquire(ctx, req)
	return answer, s.settle(req.Name, req.ID, err, func(holds, waits, others bool) bool {
		return others || holds == answer.Granted()
	})
}

// Release waits until no node has the grant.
func (s *Settled) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	return s.settle(name, id, s.Store.Release(ctx, name, id, keep), nothing)
}

// Leave waits until no node has anything of the identity.
func (s *Settled) Leave(ctx context.Context, name string, id store.ID) error {
	return s.settle(name, id, s.Store.Leave(ctx, name, id), nothing)
}

func nothing(holds, waits, _ bool) bool { return !holds && !waits }

// settle waits after a successful call until all nodes are as they should be. Holds tells that the identity
// has a grant, and not only a kept record. If that does not happen, the test will notice.
func (s *Settled) settle(name string, id store.ID, failed error, done func(holds, waits, others bool) bool) error {
	if failed != nil {
		return failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	for _, n := range s.Nodes {
		for ctx.Err() == nil {
			page, err := n.List(ctx, store.Query{Name: name})
			holds, waits, others := false, false, false
			for _, lock := range page.Locks {
				for _, h := range lock.Holders {
					holds = holds || h.ID == id && h.State == store.Held
					others = others || h.ID != id
				}
				for _, w := range lock.Waiters {
					waits = waits || w.ID == id
				}
			}
			if err == nil && done(holds, waits, others) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

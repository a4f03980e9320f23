package suites

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// settleLimit bounds how long a call waits for the nodes that it did not need.
const settleLimit = 5 * time.Second

// A Settled is a quorum whose calls return when all nodes have finished, not only a majority, because the
// conformance suite looks at a store through another handle right after a call.
type Settled struct {
	store.Store
	Nodes []store.Store // other handles on the nodes
}

// Acquire waits until all nodes or none have granted the request, unless several requests compete.
func (s *Settled) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	answer, err := s.Store.Acquire(ctx, req)
	if err == nil {
		s.settle(req.Name, req.ID, func(holds, waits, others bool) bool {
			return others || holds == answer.Granted()
		})
	}
	return answer, err
}

// Release waits until no node has the grant.
func (s *Settled) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	err := s.Store.Release(ctx, name, id, keep)
	if err == nil {
		s.settle(name, id, nothing)
	}
	return err
}

// Leave waits until no node has anything of the identity.
func (s *Settled) Leave(ctx context.Context, name string, id store.ID) error {
	err := s.Store.Leave(ctx, name, id)
	if err == nil {
		s.settle(name, id, nothing)
	}
	return err
}

func nothing(holds, waits, _ bool) bool { return !holds && !waits }

// settle waits until all nodes are as they should be. Holds tells that the identity has a grant, and
// not only a kept record. If that does not happen, the test will notice.
func (s *Settled) settle(name string, id store.ID, done func(holds, waits, others bool) bool) {
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
}

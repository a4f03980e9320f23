package zkstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/internal/wake"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	// renewBatch bounds the number of grants in one transaction. Servers refuse requests of a
	// megabyte, and a grant has 5 kB at most.
	renewBatch = 150

	// renewWorkers bounds how many grants that need more than a new time are renewed at once.
	renewWorkers = 32
)

// Renew extends grants; see [store.Store]. Each is a write in this session that a majority has
// agreed on, mostly many in a transaction. Transactions are in flight side by side.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]store.Renewed, len(grants))
	writes, together := make([]*write, len(grants)), []*write(nil)
	for i := range grants {
		if writes[i] = s.renewal(ctx, &grants[i]); writes[i] != nil {
			together = append(together, writes[i])
		}
	}
	var all sync.WaitGroup
	for chunk := range slices.Chunk(together, renewBatch) {
		all.Go(func() { s.sendWrites(ctx, chunk) })
	}
	all.Wait()
	workers := make(chan struct{}, renewWorkers)
	for i, w := range writes {
		switch {
		case w == nil || w.err == wire.ErrNoNode || w.err == wire.ErrBadVersion || w.err == nil && !w.ours:
			workers <- struct{}{}
			all.Go(func() {
				outcomes[i] = s.renewOne(ctx, &grants[i])
				<-workers
			})
		case w.err != nil:
			outcomes[i].Err = s.explain(w.err)
		default:
			outcomes[i] = store.Renewed{Status: store.Extended, TTL: s.ttl(grants[i].TTL)}
		}
	}
	all.Wait()
	if s.life.Err() != nil {
		return nil, errClosed // Close may have left the grants with their earlier TTL
	}
	for i := range outcomes {
		if errors.Is(outcomes[i].Err, store.ErrInvalid) {
			return nil, outcomes[i].Err
		}
	}
	return outcomes, nil
}

// renewal returns a write that changes only the time of a grant. It is nil if more than that is
// asked for, or the grant is not known.
func (s *Store) renewal(ctx context.Context, g *store.Renewal) *write {
	ttl := s.ttl(g.TTL)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[wake.Key{Name: g.Name, ID: g.ID}]
	if c == nil || !c.rec.granted || g.Tokens != 0 || g.Mode != c.rec.Mode || g.Floor > 0 {
		return nil
	}
	rec := c.rec
	rec.TTL = ttl
	w := &write{ctx: ctx, name: g.Name, ops: []wire.Op{wire.Set(c.path(), rec.encode(), c.version)}}
	w.then = func(parts []wire.Result, err error) {
		w.ours = err == nil && s.written(c, rec, &parts[0].Stat)
	}
	return w
}

// renewOne renews one grant, whatever is asked for.
func (s *Store) renewOne(ctx context.Context, g *store.Renewal) (out store.Renewed) {
	err := again(func() error {
		c, err := s.find(ctx, wake.Key{Name: g.Name, ID: g.ID})
		if c == nil || err != nil {
			out = store.Renewed{Status: store.Gone}
			return err
		}
		out, err = s.extend(ctx, c, g)
		return err
	})
	if err != nil {
		return store.Renewed{Err: s.explain(err)}
	}
	return out
}

// extend renews a claim. A further block of tokens is that of the change that renews it. There is
// none if others wait, which a list behind the write tells.
func (s *Store) extend(ctx context.Context, c *claim, g *store.Renewal) (out store.Renewed, err error) {
	old, zxid := s.state(c)
	if err := store.CheckRenewal(g, old.Mode); err != nil {
		return out, err
	}
	if g.Floor >= store.MaxToken {
		return out, store.NoTokens(g.Floor)
	}
	rec, waiters := old, 0
	rec.Mode, rec.TTL = g.Mode, s.ttl(g.TTL)
	if g.Tokens == 0 {
		err = s.save(ctx, c, rec)
	} else {
		rec.token, rec.Tokens, rec.Floor = 0, min(g.Tokens, block), max(g.Floor, old.last())
		list := &wire.Call{Op: wire.Children(c.parent, false)}
		if err = s.save(ctx, c, rec, list); err == nil && len(list.Children) != 1 {
			waiters, err = s.countWaiters(ctx, c)
		}
	}
	if err != nil {
		return out, err
	}
	out = store.Renewed{Status: store.Extended, TTL: s.ttl(rec.TTL)}
	if g.Tokens == 0 || waiters > 0 {
		s.mu.Lock()
		c.rec.token, c.rec.Tokens, c.rec.Floor = old.token, old.Tokens, old.Floor
		s.mu.Unlock()
		if g.Floor > 0 {
			err = s.raise(ctx, zxid, g.Floor)
		}
		return out, err
	}
	rec, err = s.settle(ctx, c)
	out.Token, out.Tokens = rec.token, rec.Tokens
	return out, err
}

// countWaiters counts the requests queued for the name of a claim.
func (s *Store) countWaiters(ctx context.Context, c *claim) (int, error) {
	q, err := s.lookAt(ctx, c.parent)
	if err != nil || q == nil {
		return 0, err
	}
	holders, _, err := s.holders(ctx, q, 1)
	return q.waiters(holders, -1), err
}

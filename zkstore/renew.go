package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	// renewBatch bounds how many grants are renewed in one transaction. Servers refuse
	// requests of a megabyte, and a grant has 5 kB at most.
	renewBatch = 150

	// renewWorkers is how many grants that need more than a new time are renewed at once.
	renewWorkers = 32
)

// Renew extends grants: see store.Store. Each is a write in this session that a majority has
// agreed on, most of them many in a transaction. Transactions are in flight side by side.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	outcomes, errs := make([]store.Renewed, len(grants)), make([]error, len(grants))
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
		case w != nil && w.err == nil && w.ours:
			outcomes[i] = store.Renewed{Status: store.Extended, TTL: s.ttl(grants[i].TTL)}
		case w != nil && w.err != nil && w.err != wire.ErrNoNode && w.err != wire.ErrBadVersion:
			errs[i] = w.err
		default:
			workers <- struct{}{}
			all.Go(func() {
				outcomes[i], errs[i] = s.renewOne(ctx, &grants[i])
				<-workers
			})
		}
	}
	all.Wait()
	if s.life.Err() != nil {
		return nil, errClosed // Close may have left the grants with their earlier TTL
	}
	for _, err := range errs {
		if errors.Is(err, store.ErrInvalid) {
			return nil, err
		}
	}
	if len(errs) > 0 && !slices.Contains(errs, nil) {
		return nil, s.explain(errs[0])
	}
	return outcomes, nil
}

// renewal is a write that changes nothing but the time of a grant. It is nil if the grant needs
// more than that.
func (s *Store) renewal(ctx context.Context, g *store.Renewal) *write {
	ttl := s.ttl(g.TTL)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[key{g.Name, g.ID}]
	if c == nil || !c.rec.granted || g.Tokens != 0 || g.Mode != c.rec.mode || g.Floor > 0 {
		return nil
	}
	rec := c.rec
	rec.ttl = ttl
	w := &write{ctx: ctx, name: g.Name, ops: []wire.Op{wire.Set(c.path(), rec.encode(), c.version)}}
	w.then = func(parts []wire.Result, err error) {
		w.ours = err == nil && s.written(c, rec, &parts[0].Stat)
	}
	return w
}

// renewOne renews one grant, whatever is asked for.
func (s *Store) renewOne(ctx context.Context, g *store.Renewal) (store.Renewed, error) {
	for range looks {
		c, err := s.find(ctx, g.Name, g.ID)
		if err != nil {
			return store.Renewed{}, err
		}
		if c == nil {
			return store.Renewed{Status: store.Gone}, nil
		}
		out, ok, err := s.extend(ctx, c, g)
		if ok || err != nil {
			return out, err
		}
	}
	return store.Renewed{}, errCrowd
}

// extend renews a claim. It is not ok if that is to be tried anew. With more tokens, they are
// those of the change, unless others wait, which a list behind the write tells.
func (s *Store) extend(ctx context.Context, c *claim, g *store.Renewal) (out store.Renewed, ok bool, err error) {
	old, zxid := s.state(c)
	rec := old
	switch {
	case g.Mode != old.mode && (g.Mode != store.Shared || old.mode != store.Exclusive):
		return out, false, fmt.Errorf("%w: renew %q: held in %s mode, asked for %s: a grant keeps its mode or steps down from exclusive to shared",
			store.ErrInvalid, g.Name, old.mode, g.Mode)
	case g.Floor >= store.MaxToken:
		return out, false, tokensOver(g.Floor)
	}
	rec.mode, rec.ttl = g.Mode, s.ttl(g.TTL)
	waiters := 0
	if g.Tokens == 0 {
		ok, err = s.save(ctx, c, rec)
	} else {
		rec.token, rec.tokens, rec.floor = 0, min(g.Tokens, block), max(g.Floor, old.last())
		list := &wire.Call{Op: wire.Children(c.parent, false)}
		if ok, err = s.save(ctx, c, rec, list); ok && len(list.Children) != 1 {
			waiters, err = s.countWaiters(ctx, c)
		}
	}
	if !ok || err != nil {
		return out, false, err
	}
	out = store.Renewed{Status: store.Extended, TTL: s.ttl(rec.ttl)}
	if g.Tokens == 0 || waiters > 0 {
		s.mu.Lock()
		c.rec.token, c.rec.tokens, c.rec.floor = old.token, old.tokens, old.floor
		s.mu.Unlock()
		if g.Floor == 0 {
			return out, true, nil
		}
		return out, true, s.raise(ctx, zxid, g.Floor)
	}
	if err := s.settle(ctx, c); err != nil {
		return store.Renewed{}, false, err
	}
	rec, _ = s.state(c)
	out.Token, out.Tokens = rec.token, rec.tokens
	return out, true, nil
}

// countWaiters reads how many wait behind the holders of a claim's name.
func (s *Store) countWaiters(ctx context.Context, c *claim) (int, error) {
	q, err := s.lookAt(ctx, c.parent)
	if err != nil || q == nil {
		return 0, err
	}
	holders, _, err := s.holders(ctx, q, 1)
	return q.waiters(holders, -1), err
}

package zkstore

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// Renew extends grants; see [store.Store]. Each renewal is a write in this session that a majority
// has agreed on. Concurrent writes are batched into transactions.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	outcomes := make([]store.Renewed, len(grants))
	var all sync.WaitGroup
	for i := range grants {
		all.Go(func() { outcomes[i] = s.renewOne(ctx, &grants[i]) })
	}
	all.Wait()
	if s.life.Closing.Err() != nil {
		return nil, s.life.ErrClosed // Close may have replaced the nodes, with their earlier TTL
	}
	if len(outcomes) > 0 && !slices.ContainsFunc(outcomes, func(o store.Renewed) bool { return o.Err == nil }) {
		return nil, outcomes[0].Err
	}
	return outcomes, nil // the outcome of a failed renewal is unknown, and the others are not affected
}

// renewOne renews one grant.
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

// extend renews a claim. A requested block of tokens is that of the change that renews the claim. There is
// none if others wait, which a listing of the queue after the write shows.
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
		err = s.write(s.saving(ctx, c, rec))
	} else {
		rec.token, rec.Tokens, rec.Floor = 0, min(g.Tokens, block), max(g.Floor, old.token+int64(old.Tokens)-1)
		w := s.saving(ctx, c, rec)
		set := &wire.Call{Op: w.ops[0], Then: func(c *wire.Call) { c.Err = w.then([]wire.Result{c.Result}, c.Err) }}
		var q *queue
		if q, err = s.look(ctx, c.parent, set); err == nil && len(q.nodes) > 1 {
			var holders int
			holders, _, err = s.holders(ctx, q, 1)
			waiters = q.waiters(holders, store.ID{})
		}
		if q.unknown != nil {
			waiters++ // of a later version
		}
		if err == nil && waiters > 0 { // others must not see a block that the holder does not use
			rec.token, rec.Tokens, rec.Floor = old.token, old.Tokens, old.Floor
			err = s.write(s.saving(ctx, c, rec))
		}
	}
	if err != nil {
		return out, err
	}
	out = store.Renewed{Status: store.Extended, TTL: s.ttl(rec.TTL)}
	if g.Tokens == 0 || waiters > 0 {
		if g.Floor > 0 {
			err = s.raise(ctx, zxid, g.Floor)
		}
		return out, err
	}
	floor := rec.Floor
	if rec, err = s.settle(ctx, c); err == nil && rec.token <= floor {
		err = errChanged // a renewal that began earlier has written the previous block again
	}
	out.Token, out.Tokens = rec.token, rec.Tokens
	return out, err
}

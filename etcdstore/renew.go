package etcdstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-lock/holdfast/store"
)

// maxOps is how many keys are read in one transaction: the default limit of etcd.
const maxOps = 128

// Renew extends grants: see [store.Store]. If all renewals failed, it returns the first error. The error of a
// renewal is ErrInvalid also for a floor with no token above it.
//
// It keeps the leases alive and reads the keys at the same time, because a short lease has no time for two
// round trips. A key that exists has the whole TTL left from the beginning of the call, since a lease that has
// ended does not come back. A former leader that does not know that it was replaced cannot answer the read.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.life.EnterCall(ctx); err != nil {
		return nil, err
	}
	defer s.life.Exit()
	outcomes := make([]store.Renewed, len(grants))
	slow, err := s.extend(ctx, grants, outcomes)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	inParallel(len(slow), func(n int) {
		out, err := s.renew(ctx, &grants[slow[n]])
		out.Err = cmp.Or(s.explain(ctx, err), out.Err)
		outcomes[slow[n]] = out
	})
	known := false
	for i := range outcomes {
		known = known || outcomes[i].Status != store.Unknown
		err = cmp.Or(err, outcomes[i].Err)
	}
	if !known {
		return nil, err
	}
	return outcomes, nil // the outcome of a failed renewal is unknown, and the others are not affected
}

// extend renews the grants that need no write, and returns the indexes of the others.
func (s *Store) extend(ctx context.Context, grants []store.Renewal, outcomes []store.Renewed) (slow []int, err error) {
	var quick []unchanged
	var leases []*lease
	seen, mark := s.known()
	for i := range grants {
		g := &grants[i]
		c, _ := s.claim(claimKey{g.Name, g.ID})
		if c.grant == nil || c.grant.seconds != whole(g.TTL) || c.mode != g.Mode || g.Tokens > 0 || tokenAt(seen+1, mark.base) <= g.Floor {
			slow = append(slow, i)
			continue
		}
		quick, leases = append(quick, unchanged{claim: c, name: g.Name, index: i}), append(leases, c.grant)
	}
	if len(quick) == 0 {
		return slow, nil
	}
	var alive []bool
	var keeping sync.WaitGroup
	keeping.Go(func() { alive, err = s.keepAlives(ctx, leases) })
	parts := slices.Collect(slices.Chunk(quick, maxOps))
	inParallel(len(parts), func(n int) { s.check(ctx, parts[n]) })
	keeping.Wait()
	if err != nil {
		return nil, err
	}
	for n, q := range quick {
		switch {
		case q.err != nil:
			outcomes[q.index].Err = s.explain(ctx, q.err)
		case q.there && alive[n]:
			outcomes[q.index] = store.Renewed{Status: store.Extended, TTL: q.grant.span()}
		default:
			slow = append(slow, q.index)
		}
	}
	return slow, nil
}

// An unchanged is a renewal that needs no write if the grant exists as this handle knows it.
type unchanged struct {
	claim
	name  string
	index int
	there bool
	err   error
}

// check reads which grants exist.
func (s *Store) check(ctx context.Context, grants []unchanged) {
	ops := make([]*pb.RequestOp, len(grants))
	for n, g := range grants {
		ops[n] = getAs(&pb.RangeRequest{Key: []byte(s.keys.key(g.name, kindOf(g.mode), g.grant.id)), KeysOnly: true})
	}
	resp, err := s.txn(ctx, &pb.TxnRequest{Success: ops})
	for n := range grants {
		g := &grants[n]
		if g.err = err; err == nil {
			kvs := resp.Responses[n].GetResponseRange().Kvs
			g.there = len(kvs) == 1 && kvs[0].CreateRevision == g.create && kvs[0].Lease == g.grant.id
		}
	}
}

// renew renews one grant that may have to be written again. If the database is full, it is extended
// unchanged, which needs no space.
func (s *Store) renew(ctx context.Context, r *store.Renewal) (store.Renewed, error) {
	key := claimKey{r.Name, r.ID}
	var full error
	for {
		own, queued, err := s.own(ctx, key)
		if err != nil {
			return store.Renewed{}, err
		}
		if own == nil {
			s.forgetGrant(ctx, key)
			return store.Renewed{Status: store.Gone}, nil
		}
		if err := store.CheckRenewal(r, own.Mode); err != nil {
			return store.Renewed{}, err
		}
		if r.Floor >= store.MaxToken {
			return store.Renewed{}, store.NoTokens(r.Floor)
		}
		g := regrant{s: s, key: key, own: own, mode: own.Mode, above: r.Floor}
		_, g.floor = s.known()
		if full == nil {
			g.mode, g.ttl = r.Mode, r.TTL
			if !queued {
				g.tokens = min(r.Tokens, block)
			}
		}
		if g.tokens == 0 {
			if err := s.raise(ctx, r.Floor); err != nil {
				return store.Renewed{}, err
			}
		}
		out, err := g.write(ctx)
		switch {
		case full == nil && rpctypes.Error(err) == rpctypes.ErrNoSpace:
			full = err
		case err != nil || out.Status == store.Extended:
			if g.mode != r.Mode {
				out.Err = s.explain(ctx, full)
			}
			return out, err
		}
	}
}

// own reads the live grant of an identity, and reports whether others are queued for its name.
func (s *Store) own(ctx context.Context, key claimKey) (own *record, queued bool, err error) {
	queue := s.queueRange(key.name)
	queue.Limit, queue.KeysOnly = 1, true
	reads := []*pb.RequestOp{s.getHolders(key.name), getAs(queue), get(s.keys.floor, "")}
	resp, err := s.txn(ctx, &pb.TxnRequest{Success: reads})
	if err != nil {
		return nil, false, err
	}
	holders, err := s.keys.parseRecords(resp.Responses[0].GetResponseRange())
	if err != nil {
		return nil, false, err
	}
	if own = (&snapshot{holders: holders}).holder(key.id); own != nil && !own.held() {
		own = nil
	}
	mark, err := parseFloor(resp.Responses[2].GetResponseRange())
	s.note(resp.Header.Revision, mark)
	return own, len(resp.Responses[1].GetResponseRange().Kvs) > 0, err
}

// queue returns the prefix of the keys of all waiters of a name.
func (s *Store) queue(name string) string { return s.keys.name(name) + string(rune(kindWaiting)) }

// forgetGrant recycles the lease of a grant that is gone.
func (s *Store) forgetGrant(ctx context.Context, key claimKey) {
	if c, known := s.claim(key); known && c.place == nil {
		s.forget(ctx, key)
	}
}

// A regrant extends a grant, and writes it again if something about it changes.
type regrant struct {
	s      *Store
	key    claimKey
	own    *record // as it was read
	mode   store.Mode
	ttl    time.Duration // 0 if it stays the same
	tokens int           // a further block, if not 0
	above  int64
	floor  floorMark

	known *lease // the lease of the claim at the start of the renewal
}

// write extends the grant. The status is not Extended if the grant has changed since it was read.
func (g *regrant) write(ctx context.Context) (out store.Renewed, err error) {
	s, began := g.s, sinceBase()
	old := g.lease()
	alive, err := s.keepAlive(ctx, old)
	if err != nil || !alive {
		return out, err
	}
	next := old
	if fits := g.ttl == 0 || old.seconds == whole(g.ttl) || old.foreign && old.span() == time.Duration(whole(g.ttl))*time.Second; !fits {
		if next, err = s.lease(ctx, g.ttl); err != nil {
			return out, err
		}
	}
	if out, err = g.put(ctx, old, next); err != nil || out.Status != store.Extended {
		return out, err
	}
	g.note(ctx, next)
	out.Status, out.TTL = store.Extended, next.left(began) // a reused lease has less than its whole TTL
	return out, nil
}

// lease returns the lease of the grant. It records a claim if there is none, so that note can tell whether
// a concurrent Release or Leave removed it.
func (g *regrant) lease() (l *lease) {
	l = &lease{id: g.own.lease, foreign: true}
	g.s.change(g.key, func(c *claim) {
		switch {
		case c.grant == nil:
			c.grant, c.mode, c.create = l, g.own.Mode, g.own.create
		case c.grant.id == l.id:
			l = c.grant
		}
		g.known = c.grant
	})
	return l
}

// put writes the grant with its next lease, if it has to be written and has not changed since it was read.
func (g *regrant) put(ctx context.Context, old, next *lease) (out store.Renewed, err error) {
	s, r := g.s, *g.own
	write := next != old || g.tokens > 0 || g.mode != r.Mode
	before := s.keys.of(&r)
	r.Token = r.firstToken()
	r.Mode, r.kind = g.mode, kindOf(g.mode)
	txn := &pb.TxnRequest{Compare: []*pb.Compare{modIs(before, r.mod)}}
	raise := false
	if g.tokens > 0 {
		seen, _ := s.known()
		if r.Base, raise, err = g.floor.above(g.above, max(r.mod, seen)); err != nil {
			return out, err
		}
		r.Token, r.Tokens = 0, g.tokens
		txn.Compare = append(txn.Compare, modIs(s.keys.floor, g.floor.mod), nothingNew(s.queue(g.key.name), s.keys.behind(g.key.name), 0))
	}
	after := s.keys.key(r.name, r.kind, next.id)
	if after != before {
		txn.Success = append(txn.Success, remove(before))
	}
	if raise {
		txn.Success = append(txn.Success, s.putFloor(r.Base))
	}
	if write {
		txn.Success = append(txn.Success, put(after, r.value(), next.id))
	}
	resp, err := s.txn(ctx, txn)
	switch {
	case leaseGone(err):
		return out, nil
	case err != nil && !write:
		return out, err
	case err != nil:
		next.unsure.Store(true)
		if next != old {
			s.pool.push(next) // the grant has either lease now
		}
		return out, err
	case !resp.Succeeded:
		if next != old { // otherwise it belongs to the claim, or to the call that has ended the grant
			s.recycle(ctx, next)
		}
		return out, nil
	}
	out.Status = store.Extended
	if after != before {
		g.own.create = resp.Header.Revision
	}
	if g.tokens > 0 {
		out.Token, out.Tokens = tokenAt(resp.Header.Revision, r.Base), g.tokens
	}
	if raise {
		s.note(resp.Header.Revision, floorMark{mod: resp.Header.Revision, base: r.Base})
	}
	return out, nil
}

// note records the current lease of the grant, and recycles the previous one, unless another call has
// changed the claim and done so.
func (g *regrant) note(ctx context.Context, next *lease) {
	s := g.s
	s.mu.Lock()
	c := s.claims[g.key]
	swap := c != nil && c.grant == g.known
	ended := c == nil && s.life.Work.Err() == nil
	if swap {
		c.grant, c.mode, c.create = next, g.mode, g.own.create
	}
	s.mu.Unlock()
	switch {
	case swap && next != g.known:
		s.recycle(ctx, g.known)
	case ended && next != g.known: // no other call knows this lease
		next.unsure.Store(true)
		s.recycle(ctx, next)
	}
}

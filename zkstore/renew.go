package zkstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// batchOps and batchBytes bound how much is renewed in one transaction. Servers refuse
	// requests above a megabyte.
	batchOps   = 500
	batchBytes = 256 << 10

	// renewWorkers is how many of those that need one by one are under way at once.
	renewWorkers = 32
)

// Renew extends grants: see store.Store. Each is a write in this session that a majority has
// agreed on, most of them many at once.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	return do(ctx, s, func() ([]store.Renewed, error) {
		outcomes := make([]store.Renewed, len(grants))
		var single []int
		b := batch{s: s}
		for i := range grants {
			if b.full() {
				single = append(single, b.send(outcomes)...)
			}
			if !b.add(i, &grants[i]) {
				single = append(single, i)
			}
		}
		single = append(single, b.send(outcomes)...)
		return outcomes, s.renewEach(ctx, grants, outcomes, single)
	})
}

// A batch is renewals in one transaction, which change nothing but the time.
type batch struct {
	s     *Store
	ops   []any
	items []batchItem
	bytes int
	sent  chan struct{} // closed then: nothing else is done under these identities meanwhile
}

type batchItem struct {
	i   int
	c   *claim
	rec record
}

func (b *batch) full() bool { return len(b.items) >= batchOps || b.bytes > batchBytes }

// add is false if a grant needs more than a batch does, or is in use.
func (b *batch) add(i int, g *store.Renewal) bool {
	s, k := b.s, key{g.Name, g.ID}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mine[k]
	if c == nil || s.busy[k] != nil || !c.rec.granted || g.Tokens != 0 || g.Mode != c.rec.mode ||
		!s.base.known || g.Floor-c.mzxid > s.base.value {
		return false
	}
	if b.sent == nil {
		b.sent = make(chan struct{})
	}
	s.busy[k] = b.sent
	rec := c.rec
	rec.ttl = s.ttl(g.TTL)
	data := rec.encode()
	b.ops = append(b.ops, &zk.SetDataRequest{Path: c.path(), Data: data, Version: c.version})
	b.items = append(b.items, batchItem{i, c, rec})
	b.bytes += len(data) + len(c.path()) + 32
	return true
}

// send makes the transaction, and returns those that have to be renewed one by one because
// one of them could not be.
func (b *batch) send(outcomes []store.Renewed) (single []int) {
	if len(b.items) == 0 {
		return nil
	}
	results, err := b.s.conn.Multi(b.ops...)
	for n, item := range b.items {
		if err != nil || b.s.written(item.c, item.rec, results[n].Stat) != nil {
			single = append(single, item.i)
			continue
		}
		outcomes[item.i] = store.Renewed{Status: store.Extended, TTL: item.rec.ttl}
	}
	b.s.mu.Lock()
	for _, item := range b.items {
		delete(b.s.busy, item.c.key)
	}
	b.s.mu.Unlock()
	close(b.sent)
	b.ops, b.items, b.bytes, b.sent = nil, nil, 0, nil
	return single
}

// renewEach renews grants one by one, some at a time. Errors leave their outcomes unknown,
// unless all fail.
func (s *Store) renewEach(ctx context.Context, grants []store.Renewal, outcomes []store.Renewed, which []int) error {
	if len(which) == 0 {
		return nil
	}
	errs := make([]error, len(which))
	next := make(chan int, len(which))
	for n := range which {
		next <- n
	}
	close(next)
	var wg sync.WaitGroup
	for range min(renewWorkers, len(which)) {
		wg.Go(func() {
			for n := range next {
				i := which[n]
				if errs[n] = ctx.Err(); errs[n] == nil {
					outcomes[i], errs[n] = s.renewOne(ctx, &grants[i])
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if isInvalid(err) {
			return err
		}
	}
	if len(which) < len(grants) {
		return nil
	}
	for _, err := range errs {
		if err == nil {
			return nil
		}
	}
	return errs[0]
}

// renewOne renews one grant, whatever is asked for.
func (s *Store) renewOne(ctx context.Context, g *store.Renewal) (store.Renewed, error) {
	gone := store.Renewed{Status: store.Gone}
	free, err := s.hold(ctx, key{g.Name, g.ID})
	if err != nil {
		return store.Renewed{}, err
	}
	defer free()
	for range looks {
		c, err := s.find(g.Name, g.ID)
		if err != nil {
			return store.Renewed{}, err
		}
		if c == nil || !c.rec.granted {
			return gone, nil
		}
		out, ok, err := s.extend(c, g)
		if ok || err != nil {
			return out, err
		}
	}
	return store.Renewed{}, errCrowd
}

// extend renews a claim. It is not ok if that is to be looked at anew.
func (s *Store) extend(c *claim, g *store.Renewal) (out store.Renewed, ok bool, err error) {
	rec := c.rec
	if g.Mode != rec.mode && (g.Mode != store.Shared || rec.mode != store.Exclusive) {
		return out, false, fmt.Errorf("%w: renew %q: held in %s mode, asked for %s: a grant keeps its mode or steps down from exclusive to shared",
			store.ErrInvalid, g.Name, rec.mode, g.Mode)
	}
	if g.Floor >= store.MaxToken {
		return out, false, tokensOver(g.Floor)
	}
	rec.mode, rec.ttl = g.Mode, s.ttl(g.TTL)
	if ok, err = s.write(c, rec); !ok || err != nil {
		return out, false, err
	}
	out = store.Renewed{Status: store.Extended, TTL: rec.ttl}
	tokens := 0
	if g.Tokens > 0 {
		q, err := s.look(g.Name)
		if err != nil {
			return store.Renewed{}, false, err
		}
		if q == nil {
			return out, false, nil
		}
		holders, _, _, err := s.holders(q, 1)
		if err != nil {
			return store.Renewed{}, false, err
		}
		if q.waiters(holders, -1) == 0 {
			tokens = min(g.Tokens, maxBlock)
		}
	}
	if tokens > 0 {
		if err := s.reserve(c, tokens, g.Floor, c.rec.last()); err != nil {
			return store.Renewed{}, false, err
		}
		out.Token, out.Tokens = c.rec.token, c.rec.tokens
		return out, true, nil
	}
	return out, true, s.raiseFloor(c, g.Floor)
}

// raiseFloor makes all later tokens of a claim's name greater than a floor.
func (s *Store) raiseFloor(c *claim, floor int64) error {
	for range baseTries {
		b, err := s.tokenBase()
		if err != nil || floor-c.mzxid <= b.value {
			return err
		}
		if done, err := s.raise(c, c.rec, b, floor-c.mzxid); done || err != nil {
			return err
		}
	}
	return errCrowd
}

package etcdstore

import (
	"cmp"
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// Acquire makes one attempt to take a name: see [store.Store], and [store.SameClaim] for a repeated request.
//
// The first attempt assumes that the name is free, and grants it in one transaction if it is. The first waiter does
// the same when its watch reported that the holder is gone. All other attempts read first. A decision that is based
// on a read is written on condition that nothing has changed since the read, and is made again if something has.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if err := s.life.EnterCall(ctx); err != nil {
		return store.Answer{}, err
	}
	defer s.life.Exit()
	if req.Floor >= store.MaxToken {
		return store.Answer{}, store.NoTokens(req.Floor)
	}
	req.Tokens = min(max(req.Tokens, 1), block)
	a := &attempt{s: s, req: &req, key: claimKey{req.Name, req.ID}, began: sinceBase()}
	answer, err := a.run(ctx)
	if c, _ := s.claim(a.key); c.grant != a.spare { // otherwise an earlier attempt may have been granted with it
		s.recycle(ctx, a.spare)
	}
	return answer, s.explain(ctx, err)
}

// An attempt is one call of Acquire.
type attempt struct {
	s     *Store
	req   *store.Request
	key   claimKey
	began time.Duration
	snap  *snapshot
	spare *lease // for the grant, if the request is granted
}

func (a *attempt) run(ctx context.Context) (answer store.Answer, err error) {
	c, again := a.s.claim(a.key)
	seen, mark := a.s.known()
	a.snap = &snapshot{floor: mark}
	switch {
	case a.req.Mode == store.Exclusive && c.queued.place == 1 && a.s.waits.gone(a.key):
		a.snap.standing = standing{waiter: c.queued.waiter, place: 1, queue: 1}
	case again || a.req.Floor > 0 && seen == 0:
		err = a.look(ctx)
	}
	for err == nil {
		if a.s.life.Work.Err() != nil {
			return store.Answer{}, a.s.life.ErrClosed // claims are no longer recorded, so the loop would not end
		}
		var done bool
		if answer, done, err = a.decide(ctx); done {
			return answer, nil
		}
	}
	return store.Answer{}, err
}

func (a *attempt) look(ctx context.Context) (err error) {
	a.snap, err = a.s.look(ctx, a.key)
	return err
}

// lease gets a lease for the grant. If an attempt from the same place in the queue got no reply, it is the lease of
// that attempt, which may have been granted. At most one of the two is: the place is gone then.
func (a *attempt) lease(ctx context.Context) (err error) {
	if a.spare != nil {
		return nil
	}
	if c, _ := a.s.claim(a.key); c.grant != nil && c.grant.unsure.Load() {
		alive, err := a.s.keepAlive(ctx, c.grant)
		if alive {
			a.spare = c.grant
		}
		if alive || err != nil {
			return err
		}
	}
	a.spare, err = a.s.lease(ctx, a.req.TTL)
	return err
}

// decide grants or refuses the request, based on the snapshot. Done is false if the name has changed since.
func (a *attempt) decide(ctx context.Context) (answer store.Answer, done bool, err error) {
	own, waiter := a.snap.holder(a.req.ID), a.snap.waiter
	if own != nil && own.held() {
		return a.again(ctx, own)
	}
	if waiter == nil {
		// An earlier attempt without a reply may still be executed, even after this grant has ended.
		if err := a.s.forgetUnsure(ctx, a.key); err != nil {
			return answer, false, err
		}
	}
	if err := cmp.Or(waiter.same(a.req), a.snap.mixes(a.req)); err != nil {
		a.leaveQueue(ctx)
		return answer, false, err
	}
	// A kept record of this identity is a grant that ended, beside which it must not be granted again.
	fits := own == nil && a.snap.admits(a.req)
	first := a.snap.place == 1 || a.snap.queue == 0
	switch {
	case fits && first:
		return a.grant(ctx, waiter)
	case a.req.Queue && waiter == nil && a.snap.queue >= wake.MaxQueue:
		return answer, false, wake.Crowded(a.req.Name)
	case a.req.Queue && waiter == nil:
		return answer, false, a.join(ctx)
	case a.req.Queue:
		if alive, err := a.beat(ctx); !alive || err != nil {
			return answer, false, err
		}
	case waiter != nil:
		if err := a.leaveQueue(ctx); err != nil {
			return answer, false, err
		}
	}
	refusal, err := a.refuse(ctx, fits)
	return store.Answer{Refusal: refusal}, err == nil, err
}

// grant writes the grant if the name still admits it.
func (a *attempt) grant(ctx context.Context, waiter *record) (answer store.Answer, done bool, err error) {
	s, req := a.s, a.req
	seen, _ := s.known()
	base, raise, err := a.snap.floor.above(req.Floor, max(a.snap.revision, seen))
	if err != nil {
		return answer, false, err
	}
	if err := a.lease(ctx); err != nil {
		return answer, false, err
	}
	r := newRecord(req)
	r.Tokens, r.Base = req.Tokens, base
	// The transaction could read the name when it fails, but that would make every grant a quarter more expensive.
	txn := &pb.TxnRequest{Compare: append(a.unchanged(waiter), modIs(s.keys.floor, a.snap.floor.mod))}
	if waiter != nil {
		txn.Success = append(txn.Success, s.countQueue(req.Name), remove(s.keys.of(waiter)))
	}
	if raise {
		txn.Success = append(txn.Success, s.putFloor(base))
	}
	txn.Success = append(txn.Success, put(s.keys.key(req.Name, kindOf(req.Mode), a.spare.id), r.value(), a.spare.id))
	var resp *pb.TxnResponse
	if waiter == nil && !raise {
		resp, err = s.txnOn(ctx, req.Name, txn)
	} else {
		resp, err = s.txn(ctx, txn)
	}
	switch {
	case err != nil && !leaseGone(err):
		a.spare.unsure.Store(true)
		s.change(a.key, func(c *claim) { c.grant, c.mode, c.create = a.spare, req.Mode, 0 })
		a.spare = nil
		return answer, false, err
	case err != nil || !resp.Succeeded:
		if err != nil {
			a.spare = nil
		}
		return answer, false, a.look(ctx)
	}
	if raise {
		s.note(resp.Header.Revision, floorMark{mod: resp.Header.Revision, base: base})
	}
	if waiter != nil {
		a.snap.queue = int(resp.Responses[0].GetResponseRange().Count)
	}
	s.change(a.key, func(c *claim) { c.grant, c.mode, c.create = a.spare, req.Mode, resp.Header.Revision })
	a.dropPlace(ctx)
	answer = store.Answer{
		Token: tokenAt(resp.Header.Revision, base), Tokens: req.Tokens,
		TTL: a.spare.left(a.began), Waiters: a.snap.others(),
	}
	a.spare = nil // it belongs to the claim from now on
	return answer, true, nil
}

// unchanged returns conditions that hold if no key was added that excludes the request. Further readers do not
// exclude a reader.
func (a *attempt) unchanged(waiter *record) []*pb.Compare {
	keys, name := &a.s.keys, a.req.Name
	start, end, revision := keys.name(name), keys.behind(name), a.snap.revision
	if waiter == nil && revision == 0 && a.req.Mode != store.Shared {
		return []*pb.Compare{nothingNew(start, end, 0)} // the name is free
	}
	blockers := start + string(rune(holdersEnd))
	if a.req.Mode == store.Shared {
		blockers = start + string(rune(kindShared))
	}
	compares := []*pb.Compare{nothingNew(start, blockers, revision)}
	if waiter != nil {
		// Later waiters are queued behind this one, unless it has lost its place.
		return append(compares, modIs(keys.of(waiter), waiter.mod))
	}
	return append(compares, nothingNew(start+string(rune(kindWaiting)), end, 0))
}

func leaseGone(err error) bool { return rpctypes.Error(err) == rpctypes.ErrLeaseNotFound }

// again answers an identity that already has the grant, and restarts its TTL.
func (a *attempt) again(ctx context.Context, own *record) (answer store.Answer, done bool, err error) {
	if err := own.same(a.req); err != nil {
		return answer, false, err
	}
	g := regrant{s: a.s, key: a.key, own: own, mode: own.Mode, ttl: a.req.TTL, floor: a.snap.floor}
	out, err := g.write(ctx)
	if err == nil && out.Status != store.Extended {
		return answer, false, a.look(ctx) // it has changed just now
	}
	if err == nil {
		err = a.leaveQueue(ctx) // if an attempt without a reply was granted, its place is known to the claim only
	}
	return store.Answer{Token: own.firstToken(), Tokens: own.Tokens, TTL: out.TTL, Waiters: a.snap.others()}, err == nil, err
}

// join puts the request at the end of the queue.
func (a *attempt) join(ctx context.Context) error {
	s, req := a.s, a.req
	place, err := s.lease(ctx, s.config.heartbeat)
	if err != nil {
		return err
	}
	r := newRecord(req)
	key := s.keys.key(req.Name, kindWaiting, place.id)
	resp, err := s.txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{modIs(key, 0)},
		Success: []*pb.RequestOp{put(key, r.value(), place.id), s.countQueue(req.Name)},
	})
	if leaseGone(err) {
		return a.look(ctx)
	}
	if err == nil && !resp.Succeeded {
		return unknownFormat(key)
	}
	place.unsure.Store(err != nil)
	s.change(a.key, func(c *claim) { c.place = place })
	if err != nil {
		return err
	}
	if resp.Responses[1].GetResponseRange().Count > wake.MaxQueue { // others have joined since the queue was read
		return cmp.Or(a.leaveQueue(ctx), wake.Crowded(req.Name))
	}
	r.create = resp.Header.Revision
	s.change(a.key, func(c *claim) { c.queued = joined(&r) })
	return a.look(ctx)
}

// beat is the waiter's heartbeat. It returns false if the place was lost.
func (a *attempt) beat(ctx context.Context) (bool, error) {
	s := a.s
	c, _ := s.claim(a.key)
	if c.place == nil {
		return false, a.look(ctx) // Leave or Close was called meanwhile
	}
	if time.Duration(c.place.sent.Load()) >= a.began {
		return true, nil // joined just now
	}
	alive, err := s.keepAlive(ctx, c.place)
	if err == nil && !alive {
		err = a.look(ctx)
	}
	return alive, err
}

// leaveQueue removes the request from the queue.
func (a *attempt) leaveQueue(ctx context.Context) error {
	s := a.s
	if c, _ := s.claim(a.key); c.place != nil {
		place := remove(s.keys.key(a.req.Name, kindWaiting, c.place.id))
		if _, err := s.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{place}}); err != nil {
			c.place.unsure.Store(true) // it may still be executed, and must not affect another identity
			return err
		}
	}
	a.dropPlace(ctx)
	return nil
}

// dropPlace forgets the place in the queue, and recycles its lease.
func (a *attempt) dropPlace(ctx context.Context) {
	s := a.s
	s.waits.forget(a.key)
	s.mu.Lock()
	var place *lease
	if c := s.claims[a.key]; c != nil {
		place, c.place, c.queued = c.place, nil, standing{}
		if c.grant == nil {
			delete(s.claims, a.key)
		}
	}
	s.mu.Unlock()
	s.recycle(ctx, place)
}

// refuse returns the refusal, and watches for the change that a queued request waits for.
func (a *attempt) refuse(ctx context.Context, fits bool) (*store.Refusal, error) {
	s, snap := a.s, a.snap
	r := &store.Refusal{Place: snap.place, Waiters: snap.others(), Again: s.config.heartbeat / 2}
	if !a.req.Queue {
		r.Place = 0 // it has left the queue
	} else {
		s.waits.expect(a.key, a.watched(), snap.revision)
	}
	if fits {
		return r, nil
	}
	now, n := time.Now(), min(len(snap.holders), store.MaxHolders)
	errs := make([]error, n)
	r.Holders = make([]store.Holder, n)
	inParallel(n, func(i int) {
		var left time.Duration
		left, errs[i] = s.waits.left(ctx, a.key, snap.holders[i].lease)
		r.Holders[i] = snap.holders[i].holder(now, left)
	})
	return r, cmp.Or(errs...)
}

// watched returns the keys that must change before a queued request can be granted.
//
// A waiter that is not the first watches the waiter in front of it, whose key is deleted when that waiter
// is granted, leaves or dies. It also watches for a record that closes the name as done, which concerns all
// waiters. The first waiter must wait until all conflicting holders are gone, so watching one of them is
// enough. Only for permits can any single holder make room.
func (a *attempt) watched() []watch {
	keys, name := &a.s.keys, a.req.Name
	if a.snap.place > 1 {
		return []watch{
			{key: a.snap.ahead},
			{key: keys.name(name) + string(rune(kindDone)), end: keys.name(name) + string(rune(kindDone+1)), puts: true},
		}
	}
	for i := len(a.snap.holders) - 1; i >= 0; i-- {
		h := &a.snap.holders[i]
		if h.Mode != a.req.Mode || h.Mode == store.Exclusive || h.ID == a.req.ID {
			return []watch{{key: keys.of(h)}}
		}
	}
	return []watch{{key: keys.name(name), end: keys.name(name) + string(rune(holdersEnd))}}
}

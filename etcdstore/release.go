package etcdstore

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-lock/holdfast/store"
)

// Release ends a grant, or keeps its name closed for a time: see [store.Store]. It compares the
// revision of the key, so that a release that arrives late or twice never ends another grant.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	key := claimKey{name, id}
	var ended bool
	var err error
	if keep.State == store.Held {
		ended, err = s.drop(ctx, key)
	} else {
		ended, err = s.keep(ctx, key, keep)
	}
	if err != nil {
		return s.explain(ctx, err)
	}
	s.forgetGrant(ctx, key)
	if !ended {
		return store.ErrNotHeld
	}
	return nil
}

// drop deletes a grant, and reports whether there was one.
func (s *Store) drop(ctx context.Context, key claimKey) (bool, error) {
	if c, _ := s.claim(key); c.grant != nil && c.create != 0 {
		grant := s.keys.key(key.name, kindOf(c.mode), c.grant.id)
		resp, err := s.txnOn(ctx, key.name, &pb.TxnRequest{
			Compare: []*pb.Compare{createdAt(grant, c.create)},
			Success: []*pb.RequestOp{remove(grant)},
		})
		if err != nil || resp.Succeeded {
			return err == nil, err
		}
	}
	ended, err := s.erase(ctx, key, (*record).held, s.getHolders(key.name))
	return len(ended) > 0, err
}

// erase deletes those records of an identity that some reads return and that meant accepts. If there
// are none, but records of a later format, it returns an error.
func (s *Store) erase(ctx context.Context, key claimKey, meant func(*record) bool, reads ...*pb.RequestOp) ([]record, error) {
	for {
		resp, err := s.txn(ctx, &pb.TxnRequest{Success: reads})
		if err != nil {
			return nil, err
		}
		var found []record
		var unknown error
		txn := new(pb.TxnRequest)
		for _, read := range resp.Responses {
			for _, kv := range read.GetResponseRange().Kvs {
				r, err := s.keys.parseRecord(kv)
				if err != nil {
					unknown = err
				} else if r.ID == key.id && meant(&r) {
					found = append(found, r)
					txn.Compare = append(txn.Compare, modIs(s.keys.of(&r), r.mod))
					txn.Success = append(txn.Success, remove(s.keys.of(&r)))
				}
			}
		}
		if len(found) == 0 {
			return nil, unknown
		}
		if resp, err = s.txn(ctx, txn); err != nil || resp.Succeeded {
			return found, err
		}
	}
}

// Leave removes an identity from the queue and releases its grant: see [store.Store]. If an attempt
// got no reply, its lease is revoked, so that the attempt fails even if it arrives later.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	key := claimKey{name, id}
	if err := s.abandon(ctx, key); err != nil {
		return s.explain(ctx, err)
	}
	// A lease that cannot be revoked stays with the claim, so that the next Leave revokes it.
	if err := s.revokeUnsure(ctx, key); err != nil {
		return s.explain(ctx, err)
	}
	s.forget(ctx, key)
	_, err := s.settleAll(ctx, key)
	return s.explain(ctx, err)
}

// revokeUnsure revokes the leases of an identity with which a write may still arrive.
func (s *Store) revokeUnsure(ctx context.Context, key claimKey) error {
	c, _ := s.claim(key)
	for _, l := range []*lease{c.grant, c.place} {
		if l == nil || l.foreign || !l.unsure.Load() {
			continue
		}
		if err := s.revoke(ctx, l.id); err != nil {
			return err
		}
	}
	return nil
}

// abandon deletes the grant and the place in the queue of an identity.
func (s *Store) abandon(ctx context.Context, key claimKey) error {
	c, _ := s.claim(key)
	var reads []*pb.RequestOp
	if c.place != nil {
		reads = append(reads, get(s.keys.key(key.name, kindWaiting, c.place.id), ""))
	}
	if c.grant != nil {
		reads = append(reads, s.getHolders(key.name))
	}
	if len(reads) == 0 { // granted or queued through another handle, or already forgotten
		reads = append(reads, get(s.keys.name(key.name), s.keys.behind(key.name)))
	}
	_, err := s.erase(ctx, key, func(r *record) bool { return r.held() || r.kind == kindWaiting }, reads...)
	if errors.Is(err, store.ErrInvalid) { // a record of a later format, which is not of this handle
		return nil
	}
	if err != nil {
		// A deletion may still be executed, and must not affect the next user of the lease.
		for _, l := range []*lease{c.grant, c.place} {
			if l != nil {
				l.unsure.Store(true)
			}
		}
	}
	return err
}

// Break ends a grant or a kept record by force: see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	broken, err := s.erase(ctx, claimKey{name, id}, func(*record) bool { return true }, s.getHolders(name))
	if err != nil {
		return s.explain(ctx, err)
	}
	for i := range broken {
		if !broken[i].held() {
			_ = s.revoke(ctx, broken[i].lease) // no other key has this lease
		}
	}
	if len(broken) == 0 {
		return store.ErrNotHeld
	}
	return nil
}

package etcdstore

import (
	"cmp"
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-lock/holdfast/store"
)

// Release ends a grant, or keeps its name closed for a time: see [store.Store]. It compares the
// revision of the key, so that a release that arrives late or twice never ends another grant.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := s.life.EnterCall(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	err := store.CheckKeep(keep)
	if err != nil {
		return err
	}
	key := claimKey{name, id}
	if keep.State == store.Held {
		err = s.drop(ctx, key)
	} else {
		err = s.keep(ctx, key, keep)
	}
	if err == nil || err == store.ErrNotHeld {
		s.forgetGrant(ctx, key)
	}
	return s.explain(ctx, err)
}

func (s *Store) drop(ctx context.Context, key claimKey) error {
	if c, _ := s.claim(key); c.grant != nil && c.create != 0 {
		grant := s.keys.key(key.name, kindOf(c.mode), c.grant.id)
		resp, err := s.txnOn(ctx, key.name, &pb.TxnRequest{
			Compare: []*pb.Compare{createdAt(grant, c.create)},
			Success: []*pb.RequestOp{remove(grant)},
		})
		if err != nil || resp.Succeeded {
			return err
		}
	}
	return s.erase(ctx, key, (*record).held, s.getHolders(key.name))
}

// erase deletes those records of an identity that some reads return and that meant accepts. If there
// are none, it returns ErrNotHeld, or another error if there are records of a later format.
func (s *Store) erase(ctx context.Context, key claimKey, meant func(*record) bool, reads ...*pb.RequestOp) error {
	for {
		resp, err := s.txn(ctx, &pb.TxnRequest{Success: reads})
		if err != nil {
			return err
		}
		var unknown error
		txn := new(pb.TxnRequest)
		for _, read := range resp.Responses {
			records, err := s.keys.parseRecords(read.GetResponseRange())
			unknown = cmp.Or(err, unknown)
			for _, r := range records {
				if r.ID == key.id && meant(&r) {
					txn.Compare = append(txn.Compare, modIs(s.keys.of(&r), r.mod))
					txn.Success = append(txn.Success, remove(s.keys.of(&r)))
				}
			}
		}
		if len(txn.Success) == 0 {
			return cmp.Or(unknown, store.ErrNotHeld)
		}
		if resp, err = s.txn(ctx, txn); err != nil || resp.Succeeded {
			return err
		}
	}
}

// Leave removes an identity from the queue and releases its grant: see [store.Store]. If an attempt
// got no reply, its lease is revoked, so that the attempt fails even if it arrives later.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	if err := s.life.EnterCall(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	key := claimKey{name, id}
	if err := s.abandon(ctx, key); err != nil {
		return s.explain(ctx, err)
	}
	if err := s.forgetUnsure(ctx, key); err != nil {
		return s.explain(ctx, err)
	}
	_, err := s.settle(ctx, key)
	s.settleOthers()
	return s.explain(ctx, err)
}

// abandon deletes the keys of an identity.
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
	err := s.erase(ctx, key, func(r *record) bool { return r.held() || r.kind == kindWaiting }, reads...)
	if err == nil || err == store.ErrNotHeld || errors.Is(err, store.ErrInvalid) {
		return nil // a record of a later format is not of this handle
	}
	// A deletion may still be executed, and must not affect the next user of the lease.
	for _, l := range []*lease{c.grant, c.place} {
		if l != nil {
			l.unsure.Store(true)
		}
	}
	return err
}

// Break ends a grant or a kept record by force: see [store.Store]. A kept record ends with its lease, which has no
// other key. If the record were deleted first and then a call failed, its lease would stay, perhaps for weeks.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if err := s.life.EnterCall(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	kept := int64(noLease)
	err := s.erase(ctx, claimKey{name, id}, func(r *record) bool {
		if !r.held() {
			kept = r.lease
		}
		return r.held() || r.lease == noLease // without a lease, it was not written by this package
	}, s.getHolders(name))
	if kept != noLease {
		err = s.revoke(ctx, kept)
	}
	return s.explain(ctx, err)
}

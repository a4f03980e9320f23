package etcdstore

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-lock/holdfast/store"
)

// Release ends a grant or closes its name for a time: see [store.Store]. A key is that of one
// identity and its letter says that it is held, so that deleting it needs no condition.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
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
	if c, known := s.claim(key); known && c.grant != nil {
		resp, err := call(s, ctx, s.kv.DeleteRange, &pb.DeleteRangeRequest{Key: []byte(s.keys.key(key.name, kindOf(c.mode), key.id))})
		if err != nil || resp.Deleted > 0 {
			return err == nil, err
		}
	}
	n, err := s.delete(ctx, key, heldKinds[:]...)
	return n > 0, err
}

// delete deletes the keys of an identity of these kinds, and returns how many there were.
func (s *Store) delete(ctx context.Context, key claimKey, kinds ...byte) (n int64, err error) {
	txn := new(pb.TxnRequest)
	for _, kind := range kinds {
		txn.Success = append(txn.Success, remove(s.keys.key(key.name, kind, key.id)))
	}
	resp, err := s.txn(ctx, txn)
	if err != nil {
		return 0, err
	}
	for _, r := range resp.Responses {
		n += r.GetResponseDeleteRange().Deleted
	}
	return n, nil
}

// keep makes a grant a kept record, and reports whether there was one. A record has a lease of
// its own, which ends it.
func (s *Store) keep(ctx context.Context, key claimKey, keep store.Keep) (bool, error) {
	var l *lease
	for {
		own, _, err := s.own(ctx, key)
		if err == nil && own != nil && keep.State == store.Done && own.mode != store.Exclusive {
			err = fmt.Errorf("%w: keep as done: the grant is %s; only an exclusive one can close its name as done", store.ErrInvalid, own.mode)
		}
		if err == nil && own != nil && l == nil {
			l, err = s.newLease(ctx, whole(keep.For))
		}
		if err != nil || own == nil {
			if l != nil {
				s.revoke(ctx, l.id)
			}
			return false, err
		}
		before := s.keys.key(key.name, own.kind, key.id)
		r := *own
		r.token, r.since, r.kind = own.firstToken(), wall(time.Now()), kindCooling
		if keep.State == store.Done {
			r.kind = kindDone
		}
		resp, err := s.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{modIs(before, own.mod)},
			Success: []*pb.RequestOp{remove(before), put(s.keys.key(key.name, r.kind, key.id), r.value(), l.id)},
		})
		if err != nil || resp.Succeeded {
			return err == nil, err
		}
	}
}

// Leave takes an identity out of the queue and gives back its grant: see [store.Store]. If an
// attempt was not answered, its lease is revoked, so that it comes to nothing even if it
// arrives only now.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	key := claimKey{name, id}
	if _, err := s.delete(ctx, key, kindExclusive, kindPermits, kindShared, kindWaiting); err != nil {
		return s.explain(ctx, err)
	}
	s.forget(ctx, key)
	return nil
}

// Break ends a grant or a closure by force: see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	txn := new(pb.TxnRequest)
	for _, kind := range []byte{kindExclusive, kindPermits, kindShared, kindCooling, kindDone} {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(s.keys.key(name, kind, id)), PrevKv: true},
		}})
	}
	resp, err := s.txn(ctx, txn)
	if err != nil {
		return s.explain(ctx, err)
	}
	found := false
	for _, answer := range resp.Responses {
		for _, kv := range answer.GetResponseDeleteRange().PrevKvs {
			found = true
			if r, err := s.keys.parseRecord(kv); err == nil && !r.held() {
				s.revoke(ctx, r.lease) // it was the record's own
			}
		}
	}
	if !found {
		return store.ErrNotHeld
	}
	return nil
}

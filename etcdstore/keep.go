package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/store"
)

// keep turns a grant into a kept record, which has a lease of its own that ends it.
func (s *Store) keep(ctx context.Context, key claimKey, keep store.Keep) (err error) {
	if kept, err := s.settle(ctx, key); kept || err != nil {
		return err
	}
	s.settleOthers()
	kind := byte(kindCooling)
	if keep.State == store.Done {
		kind = kindDone
	}
	var u unsettled
	defer func() {
		if u.lease != noLease && err != nil {
			s.mu.Lock()
			s.unsettled[key] = u
			s.mu.Unlock()
			if err == store.ErrNotHeld || errors.Is(err, store.ErrInvalid) {
				_, _ = s.settle(ctx, key)
			}
		}
	}()
	for {
		own, _, err := s.own(ctx, key)
		if err != nil || own == nil {
			return cmp.Or(err, store.ErrNotHeld)
		}
		if err := store.CheckDone(keep, own.Mode); err != nil {
			return err
		}
		if u.lease == noLease {
			// The store chooses the ID, so that it can revoke the lease if the reply is lost.
			u.lease = rand.Int64N(math.MaxInt64) + 1
			if _, err := s.newLease(ctx, u.lease, whole(keep.For)); err != nil {
				l := &lease{id: u.lease}
				l.unsure.Store(true)
				l.began(sinceBase(), whole(keep.For))
				s.pool.push(l) // it may still be created after settle found nothing to revoke, so Close looks for it
				return err
			}
		}
		r := *own
		r.Token, r.Since, r.kind, r.lease = own.firstToken(), time.Now(), kind, u.lease
		u.grant, u.kept = *own, s.keys.of(&r)
		resp, err := s.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{modIs(s.keys.of(own), own.mod)},
			Success: []*pb.RequestOp{remove(s.keys.of(own)), put(u.kept, r.value(), u.lease)},
		})
		if err != nil || resp.Succeeded {
			return err
		}
	}
}

// An unsettled is a kept record whose lease or write got no reply. It may have been written, or may still
// be. Its lease may live for weeks, so it must not be left behind without the record.
type unsettled struct {
	lease int64
	grant record // the grant that the write replaces
	kept  string // the key of the record; empty if no write was sent
}

// settle finds out whether the kept record of an identity was written. If not, it makes sure that it never will
// be, and revokes the lease.
func (s *Store) settle(ctx context.Context, key claimKey) (kept bool, err error) {
	s.mu.Lock()
	u, known := s.unsettled[key]
	s.mu.Unlock()
	if !known {
		return false, nil
	}
	if u.kept != "" {
		// Writing the grant once more changes the revision that the write depends on.
		grant := u.grant
		grant.Token = grant.firstToken()
		before := s.keys.of(&grant)
		read := getAs(&pb.RangeRequest{Key: []byte(u.kept), CountOnly: true})
		resp, err := s.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{modIs(before, grant.mod)},
			Success: []*pb.RequestOp{read, put(before, grant.value(), grant.lease)},
			Failure: []*pb.RequestOp{read},
		})
		if err != nil {
			return false, err
		}
		kept = resp.Responses[0].GetResponseRange().Count > 0
	}
	if !kept {
		if err := s.revoke(ctx, u.lease); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsettled[key] == u { // otherwise the Keep was repeated meanwhile
		delete(s.unsettled, key)
	}
	return kept, nil
}

// settleOthers settles the kept records of all identities in the background, because some may not ask again. At
// most one goroutine does that. A record that cannot be settled now is tried again at the next call. Close does not
// wait for this: it settles what is left itself, after it has revoked the leases.
func (s *Store) settleOthers() {
	if keys := s.unsettledKeys(); len(keys) > 0 && s.settling.TryLock() {
		s.life.Go(func(context.Context) {
			defer s.settling.Unlock()
			ctx, cancel := context.WithTimeout(s.life.Closing, bounded.CallTimeout)
			defer cancel()
			inParallel(len(keys), func(i int) { _, _ = s.settle(ctx, keys[i]) })
		})
	}
}

func (s *Store) unsettledKeys() []claimKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.unsettled))
}

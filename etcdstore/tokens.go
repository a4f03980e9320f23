package etcdstore

import (
	"context"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	block = 1024 // tokens of a revision: as many as the hand-overs of a slice need by default

	// slop bounds by how many revisions a write may be ahead of the last one that its client has seen, and still
	// have a token below 2^53.
	slop = 1 << 30
)

// A floorMark is the content of the floor key and the revision at which it was written. The content is an offset
// that is added to revisions to make tokens. It is 0 until a request asks for a token above that of the current
// revision, and only grows. Every grant compares the key's revision, so that none uses an outdated offset.
type floorMark struct {
	mod  int64
	base int64
}

func tokenAt(revision, base int64) int64 { return (revision + base) * block }

func parseFloor(r *pb.RangeResponse) (floorMark, error) {
	if len(r.Kvs) == 0 {
		return floorMark{}, nil
	}
	base, err := strconv.ParseInt(string(r.Kvs[0].Value), 10, 64)
	if err != nil {
		return floorMark{}, unknownFormat(r.Kvs[0].Key)
	}
	return floorMark{mod: r.Kvs[0].ModRevision, base: base}, nil
}

// above returns the offset at which all later tokens are above floor, and whether the mark must
// be raised to it. Seen is a revision that is not above the current one.
func (m floorMark) above(floor, seen int64) (base int64, raise bool, err error) {
	base = max(m.base, floor/block-seen)
	if tokenAt(seen+slop, base) > store.MaxToken {
		return 0, false, store.NoTokens(floor)
	}
	return base, base > m.base, nil
}

func (s *Store) putFloor(base int64) *pb.RequestOp {
	return put(s.keys.floor, strconv.AppendInt(nil, base, 10), 0)
}

// raise makes all later tokens greater than floor.
func (s *Store) raise(ctx context.Context, floor int64) error {
	for {
		seen, mark := s.known()
		base, raise, err := mark.above(floor, seen)
		if err != nil || !raise {
			return err
		}
		resp, err := s.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{modIs(s.keys.floor, mark.mod)},
			Success: []*pb.RequestOp{s.putFloor(base)},
			Failure: []*pb.RequestOp{get(s.keys.floor, "")},
		})
		if err != nil {
			return err
		}
		if resp.Succeeded {
			s.note(resp.Header.Revision, floorMark{mod: resp.Header.Revision, base: base})
			return nil
		}
		if mark, err = parseFloor(resp.Responses[0].GetResponseRange()); err != nil {
			return err
		}
		s.note(resp.Header.Revision, mark)
	}
}

// known returns the highest revision in a reply, and the newest mark that this handle knows.
func (s *Store) known() (revision int64, floor floorMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, s.floor
}

// note records the revision of a reply, and the mark in it.
func (s *Store) note(revision int64, m floorMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = max(s.revision, revision)
	if m.mod > s.floor.mod {
		s.floor = m
	}
}

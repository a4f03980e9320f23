package etcdstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-lock/holdfast/store"
)

// anySize lets an answer be as large as a long queue makes it.
var anySize = grpc.MaxCallRecvMsgSize(math.MaxInt32)

// hung is how long a call to one of several servers may take. A healthy cluster answers within
// milliseconds, and elects a leader within a second or two. The next attempt goes to another.
const hung = 2 * time.Second

// undated hides when a context ends. A deadline is sent with each call and watched by the
// server, which costs it as much as a part of the call itself; that the call was given up is
// told anyway.
type undated struct{ context.Context }

func (undated) Deadline() (deadline time.Time, ok bool) { return deadline, false }

// call sends a request, once. If the login was over it is repeated: then nothing was done.
func call[Q, R any](s *Store, ctx context.Context, f func(context.Context, Q, ...grpc.CallOption) (R, error), req Q) (resp R, err error) {
	if !s.several {
		if resp, err = f(undated{ctx}, req, anySize); loggedOut(err) {
			resp, err = f(undated{ctx}, req, anySize)
		}
		return resp, err
	}
	began := sinceBase()
	limited, cancel := context.WithTimeout(ctx, hung)
	defer cancel()
	var p peer.Peer
	if resp, err = f(undated{limited}, req, anySize, grpc.Peer(&p)); loggedOut(err) {
		resp, err = f(undated{limited}, req, anySize, grpc.Peer(&p))
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		s.config.conns.hung(&p, began)
	}
	return resp, err
}

func loggedOut(err error) bool {
	return err != nil && rpctypes.Error(err) == rpctypes.ErrInvalidAuthToken
}

// txn sends one transaction.
func (s *Store) txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := call(s, ctx, s.kv.Txn, req)
	if err != nil {
		return nil, err
	}
	s.noteRevision(resp.Header.Revision)
	return resp, nil
}

func (s *Store) noteRevision(revision int64) {
	for {
		seen := s.seen.Load()
		if revision <= seen || s.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

func get(key, end string) *pb.RequestOp {
	return getAs(&pb.RangeRequest{Key: []byte(key), RangeEnd: bytesOf(end)})
}

func getAs(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func put(key string, value []byte, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: value, Lease: lease}}}
}

func remove(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

func bytesOf(end string) []byte {
	if end == "" {
		return nil
	}
	return []byte(end)
}

// modIs is true if a key was last written at that revision; 0 if there is none.
func modIs(key string, revision int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: revision},
	}
}

// nothingNew is true if no key of a range was written after that revision; with 0, if there is
// no key. Keys that went away since do not matter.
func nothingNew(key, end string, revision int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), RangeEnd: []byte(end), Target: pb.Compare_MOD, Result: pb.Compare_LESS,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: revision + 1},
	}
}

// A snapshot is all that is known of a name at one revision.
type snapshot struct {
	revision int64
	holders  []record // in order of their grants
	waiters  []record // in order of arrival
	floor    floorMark
}

// snapshotOps read a snapshot.
func (s *Store) snapshotOps(name string) []*pb.RequestOp {
	return []*pb.RequestOp{get(s.keys.name(name), s.keys.behind(name)), get(s.keys.floor, "")}
}

// parseSnapshot reads the answers to snapshotOps, which are the last of a transaction.
func (s *Store) parseSnapshot(resp *pb.TxnResponse) (*snapshot, error) {
	answers := resp.Responses[len(resp.Responses)-2:]
	snap := &snapshot{revision: resp.Header.Revision}
	for _, kv := range answers[0].GetResponseRange().Kvs {
		r, err := s.keys.parseRecord(kv)
		if err != nil {
			return nil, err
		}
		snap.add(r)
	}
	snap.sort()
	mark, err := parseFloor(answers[1].GetResponseRange())
	if err != nil {
		return nil, err
	}
	snap.floor = mark
	s.noteFloor(mark)
	return snap, nil
}

func (n *snapshot) add(r record) {
	if r.kind == kindWaiting {
		n.waiters = append(n.waiters, r)
	} else {
		n.holders = append(n.holders, r)
	}
}

func (n *snapshot) sort() {
	for _, list := range [][]record{n.holders, n.waiters} {
		slices.SortFunc(list, func(a, b record) int { return cmp.Compare(a.create, b.create) })
	}
}

// look reads a name. The read is linearizable: it sees everything that was answered before.
func (s *Store) look(ctx context.Context, name string) (*snapshot, error) {
	resp, err := s.txn(ctx, &pb.TxnRequest{Success: s.snapshotOps(name)})
	if err != nil {
		return nil, err
	}
	return s.parseSnapshot(resp)
}

// holder finds a grant or a kept record.
func (n *snapshot) holder(id store.ID) *record { return find(n.holders, id) }

// waiter finds a queued request.
func (n *snapshot) waiter(id store.ID) *record { return find(n.waiters, id) }

func find(list []record, id store.ID) *record {
	for i := range list {
		if list[i].id == id {
			return &list[i]
		}
	}
	return nil
}

// admits reports whether a request fits beside the holders.
func (n *snapshot) admits(req *store.Request) bool {
	var u store.Usage
	for i := range n.holders {
		u.Add(n.holders[i].mode, n.holders[i].weight, n.holders[i].limit)
	}
	return u.Admits(req.Mode, req.Weight, req.Limit)
}

// mixes returns an ErrInvalid if the request can never go together with what is held or asked
// for already.
func (n *snapshot) mixes(req *store.Request) error {
	for _, list := range [][]record{n.holders, n.waiters} {
		for i := range list {
			if list[i].id == req.ID {
				continue
			}
			if err := store.Mixes(req.Name, req.Mode, req.Limit, list[i].mode, list[i].limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// place is 1 for the next, 0 for who is not queued.
func (n *snapshot) place(id store.ID) int {
	for i := range n.waiters {
		if n.waiters[i].id == id {
			return i + 1
		}
	}
	return 0
}

// whole is a time as etcd counts it: in seconds, rounded up.
func whole(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

package etcdstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// anySize lifts the limit on the size of a reply, which grows with the number of holders.
var anySize = grpc.MaxCallRecvMsgSize(math.MaxInt32)

// hung is how long a call to one of several servers may take before the next attempt, at another server.
// A healthy cluster replies within milliseconds and elects a leader within a second or two.
const hung = 2 * time.Second

// undated hides the deadline of a context. Otherwise gRPC would send it with each call and the server
// would watch it, at a noticeable cost. The end of the context cancels the call anyway.
type undated struct{ context.Context }

func (undated) Deadline() (deadline time.Time, ok bool) { return deadline, false }

// call sends a request once. It repeats a request that was refused because of an expired login: nothing
// was executed, and the client library has logged in again.
func call[Q, R any](s *Store, ctx context.Context, f func(context.Context, Q, ...grpc.CallOption) (R, error), req Q) (resp R, err error) {
	began, limited := sinceBase(), ctx
	if s.several {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, hung)
		defer cancel()
	}
	var p peer.Peer
	if resp, err = f(undated{limited}, req, anySize, grpc.Peer(&p)); loggedOut(err) {
		resp, err = f(undated{limited}, req, anySize, grpc.Peer(&p))
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		s.config.conns.hung(&p, began)
	}
	return resp, err
}

// loggedOut reports whether a login has expired, is older than the last change of users and roles, or
// was made before authentication was enabled.
func loggedOut(err error) bool {
	switch rpctypes.Error(err) {
	case rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty:
		return true
	}
	return false
}

func (s *Store) txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := call(s, ctx, s.kv.Txn, req)
	if err != nil {
		return nil, err
	}
	s.note(resp.Header.Revision, floorMark{})
	return resp, nil
}

func get(key, end string) *pb.RequestOp {
	return getAs(&pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)})
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

// modIs is the condition that a key was last written at that revision; 0 means that it does not exist.
func modIs(key string, revision int64) *pb.Compare {
	return compare(clientv3.ModRevision(key), "=", revision)
}

// createdAt is the condition that a key was created at that revision and has not been deleted since.
func createdAt(key string, revision int64) *pb.Compare {
	return compare(clientv3.CreateRevision(key), "=", revision)
}

// nothingNew is the condition that no key of a range was written after that revision, or that the range
// is empty if the revision is 0. Keys that were deleted since do not matter.
func nothingNew(key, end string, revision int64) *pb.Compare {
	return compare(clientv3.ModRevision(key).WithRange(end), "<", revision+1)
}

func compare(target clientv3.Cmp, result string, revision int64) *pb.Compare {
	c := pb.Compare(clientv3.Compare(target, result, revision))
	return &c
}

// A snapshot is the state of a name at one revision: the holders, and the part of the queue that
// concerns one identity. Its size does not grow with the queue.
type snapshot struct {
	revision int64
	holders  []record // in order of their grants
	floor    floorMark
	standing
}

const maxAhead = 64 // how many waiters in front of a waiter are read at most to find its place

// A standing is the place of an identity in the queue. No waiter joins in the middle, so the first waiter
// stays the first, and the one in front stays in front until it leaves.
type standing struct {
	waiter *record // of the identity; nil if it is not queued
	place  int     // 1 is next; beyond maxAhead it is an upper bound
	ahead  string  // the key of the waiter right in front, if place is not 1
	queue  int     // number of waiters
}

// joined returns the standing of a waiter whose place is not known yet.
func joined(waiter *record) standing { return standing{waiter: waiter, place: math.MaxInt} }

// far reports whether a waiter has so many others in front that it only checks whether the one right
// in front is still there. For more than that the server would read the whole queue.
func (k *standing) far() bool { return k.place > maxAhead && k.ahead != "" }

// snapshotOps returns the reads of a snapshot for an identity, given the lease of its place in
// the queue and its last known standing.
func (s *Store) snapshotOps(name string, place int64, known standing) []*pb.RequestOp {
	queue := s.queueRange(name)
	switch {
	case known.place == 1 || known.waiter == nil:
		queue.CountOnly = true
	case known.far():
		queue = &pb.RangeRequest{Key: []byte(known.ahead), KeysOnly: true}
	default:
		queue.KeysOnly, queue.Limit, queue.MaxCreateRevision = true, maxAhead, known.waiter.create-1
		queue.SortTarget, queue.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_DESCEND
	}
	return []*pb.RequestOp{
		s.getHolders(name),
		get(s.keys.key(name, kindWaiting, place), ""),
		getAs(queue),
		get(s.keys.floor, ""),
	}
}

// parseSnapshot parses the replies to snapshotOps. Whole is false if the identity is queued and its
// standing was not known.
func (s *Store) parseSnapshot(resp *pb.TxnResponse, known standing) (snap *snapshot, whole bool, err error) {
	holders, err := s.keys.parseRecords(resp.Responses[0].GetResponseRange())
	waiters, err2 := s.keys.parseRecords(resp.Responses[1].GetResponseRange())
	queue := resp.Responses[2].GetResponseRange()
	floor, err3 := parseFloor(resp.Responses[3].GetResponseRange())
	if err := cmp.Or(err, err2, err3); err != nil {
		return nil, false, err
	}
	s.note(resp.Header.Revision, floor)
	sortByArrival(holders)
	snap = &snapshot{revision: resp.Header.Revision, holders: holders, floor: floor}
	snap.queue = int(queue.Count)
	if len(waiters) == 0 {
		return snap, true, nil
	}
	snap.waiter = &waiters[0]
	if known.waiter == nil || snap.waiter.create != known.waiter.create {
		return snap, false, nil
	}
	if known.far() {
		if len(queue.Kvs) == 0 || queue.Kvs[0].CreateRevision >= snap.waiter.create { // it has left
			return snap, false, nil
		}
		snap.place, snap.ahead, snap.queue = known.place, known.ahead, known.queue
		return snap, true, nil
	}
	snap.place = len(queue.Kvs) + 1
	if len(queue.Kvs) > 0 { // otherwise it is the first
		snap.ahead = string(queue.Kvs[0].Key)
	}
	if queue.More {
		snap.place = max(snap.place, min(known.place, snap.queue))
	}
	return snap, true, nil
}

// queueRange is the range of the keys of all waiters of a name.
func (s *Store) queueRange(name string) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(s.queue(name)), RangeEnd: []byte(s.keys.behind(name))}
}

// sortByArrival sorts records by name, and those of a name by their arrival.
func sortByArrival(list []record) {
	slices.SortFunc(list, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.create, b.create))
	})
}

// countQueue reads the number of waiters.
func (s *Store) countQueue(name string) *pb.RequestOp {
	queue := s.queueRange(name)
	queue.CountOnly = true
	return getAs(queue)
}

// getHolders reads all grants and kept records.
func (s *Store) getHolders(name string) *pb.RequestOp {
	start := s.keys.name(name)
	return get(start, start+string(rune(holdersEnd)))
}

// look reads a name for an identity. It sees the effect of every call that was answered earlier.
func (s *Store) look(ctx context.Context, key claimKey) (*snapshot, error) {
	c, _ := s.claim(key)
	known, place := c.queued, int64(0)
	if c.place != nil {
		place = c.place.id
	}
	for {
		resp, err := s.txn(ctx, &pb.TxnRequest{Success: s.snapshotOps(key.name, place, known)})
		if err != nil {
			return nil, err
		}
		snap, whole, err := s.parseSnapshot(resp, known)
		if err == nil && whole && snap.waiter != nil {
			s.change(key, func(c *claim) { c.queued = snap.standing }) // so that the next look reads less
		}
		if err != nil || whole {
			return snap, err
		}
		if known.waiter == nil && snap.queue > wake.MaxQueue { // it joined, and the reply was lost
			return nil, wake.Crowded(key.name)
		}
		known = joined(snap.waiter)
	}
}

// holder returns the grant or kept record of an identity, or nil if there is none.
func (n *snapshot) holder(id store.ID) *record {
	if i := slices.IndexFunc(n.holders, func(r record) bool { return r.ID == id }); i >= 0 {
		return &n.holders[i]
	}
	return nil
}

// others returns the number of waiters, not counting the identity itself.
func (n *snapshot) others() int {
	if n.waiter != nil {
		return n.queue - 1
	}
	return n.queue
}

// admits reports whether a request fits beside the holders.
func (n *snapshot) admits(req *store.Request) bool {
	var u store.Usage
	for _, h := range n.holders {
		u.Add(h.Mode, h.Weight, h.Limit)
	}
	return u.Admits(req.Mode, req.Weight, req.Limit)
}

// mixes returns an ErrInvalid if the request can never be granted beside the holders.
func (n *snapshot) mixes(req *store.Request) error {
	for _, h := range n.holders {
		if err := store.Mixes(req.Name, req.Mode, req.Limit, h.Mode, h.Limit); err != nil && h.ID != req.ID {
			return err
		}
	}
	return nil
}

// whole returns a duration in whole seconds, rounded up, because etcd counts in seconds.
func whole(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

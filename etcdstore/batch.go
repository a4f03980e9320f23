package etcdstore

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxFlying is how many transactions are sent each for itself. Who comes while so many
	// are on their way goes with the next, together with all who have come by then.
	maxFlying = 4

	// maxBatch bounds how many go together.
	maxBatch = 64

	// batchTimeout bounds a request that belongs to nobody's context alone.
	batchTimeout = 10 * time.Second
)

// batched is a transaction on one name.
type batched struct {
	name string
	txn  *pb.TxnRequest
	resp *pb.TxnResponse
	err  error
}

// initBatch prepares what sends transactions on different names as one: each is nested in it
// with conditions of its own, and costs the servers a fraction of a request. A name is in it
// once at most, because etcd tests all conditions first and writes no key twice.
func (s *Store) initBatch() {
	s.batch.Flying, s.batch.Size = maxFlying, maxBatch
	s.batch.Name = func(one *batched) string { return one.name }
	s.batch.Send = s.sendBatch
}

// txnOn sends a transaction on one name, together with others if there are many. If the
// context ends it may still be done.
func (s *Store) txnOn(ctx context.Context, name string, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	one := &batched{name: name, txn: txn}
	err := s.batch.Do(ctx, one, func() { one.resp, one.err = s.txn(ctx, txn) })
	if err != nil {
		return nil, err
	}
	return one.resp, one.err
}

func (s *Store) sendBatch(batch []*batched) {
	ctx, cancel := context.WithTimeout(s.life, batchTimeout)
	defer cancel()
	if len(batch) == 1 {
		batch[0].resp, batch[0].err = s.txn(ctx, batch[0].txn)
		return
	}
	all := &pb.TxnRequest{Success: make([]*pb.RequestOp, len(batch))}
	for i, one := range batch {
		all.Success[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: one.txn}}
	}
	resp, err := s.txn(ctx, all)
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition:
		// Refused because of one of them, before anything was done.
		inParallel(len(batch), func(i int) { batch[i].resp, batch[i].err = s.txn(ctx, batch[i].txn) })
		return
	}
	for i, one := range batch {
		if one.err = err; err == nil {
			one.resp = resp.Responses[i].GetResponseTxn()
			one.resp.Header = resp.Header
		}
	}
}

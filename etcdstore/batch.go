package etcdstore

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
)

const (
	maxFlying = 4  // how many transactions are in flight before further ones are batched
	maxBatch  = 64 // size of a batch
)

// batched is a transaction on one name.
type batched struct {
	name string
	txn  *pb.TxnRequest
	resp *pb.TxnResponse
	err  error
}

// txnOn sends a transaction on one name, in a batch if many are in flight. If the context ends,
// the transaction may still be executed.
func (s *Store) txnOn(ctx context.Context, name string, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	one := &batched{name: name, txn: txn}
	_, err := s.batch.Do(ctx, one, func() { one.resp, one.err = s.txn(ctx, txn) })
	if err != nil {
		return nil, err
	}
	return one.resp, one.err
}

// sendBatch sends one transaction that contains transactions on different names, each with its own
// conditions. It costs the servers a fraction of what separate requests cost. A name is in a batch at
// most once, because etcd evaluates all conditions first and does not write a key twice.
func (s *Store) sendBatch(batch []*batched) (refused bool) {
	ctx, cancel := context.WithTimeout(s.life.Work, bounded.CallTimeout) // the contexts of the callers do not apply
	defer cancel()
	if len(batch) == 1 {
		batch[0].resp, batch[0].err = s.txn(ctx, batch[0].txn)
		return false
	}
	all := &pb.TxnRequest{Success: make([]*pb.RequestOp, len(batch))}
	for i, one := range batch {
		all.Success[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: one.txn}}
	}
	resp, err := s.txn(ctx, all)
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition:
		return true
	}
	if rpctypes.Error(err) == rpctypes.ErrNoSpace { // transactions that only delete are accepted
		return true
	}
	for i, one := range batch {
		if one.err = err; err == nil {
			one.resp = resp.Responses[i].GetResponseTxn()
			one.resp.Header = resp.Header
		}
	}
	return false
}

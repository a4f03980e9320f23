package etcdstore

import (
	"context"
	"slices"
	"sync"
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

// A batcher sends transactions on different names as one: each is nested in it with conditions
// of its own, and costs the servers a fraction of a request. A name is in it once at most,
// because etcd tests all conditions first and writes no key twice.
type batcher struct {
	store *Store
	wg    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	flying  int
	waiting []*batched
}

type batched struct {
	name string
	txn  *pb.TxnRequest
	resp *pb.TxnResponse
	err  error
	done chan struct{}
}

// txn sends a transaction on one name. If the context ends it may still be done.
func (b *batcher) txn(ctx context.Context, name string, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	b.mu.Lock()
	if b.flying < maxFlying {
		b.flying++
		b.mu.Unlock()
		defer b.landed()
		return b.store.txn(ctx, txn)
	}
	one := &batched{name: name, txn: txn, done: make(chan struct{})}
	b.waiting = append(b.waiting, one)
	b.mu.Unlock()
	select {
	case <-one.done:
		return one.resp, one.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, one); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return nil, ctx.Err()
}

// landed sends those who wait, if any, in place of what came back.
func (b *batcher) landed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		for _, one := range b.waiting {
			one.err = errClosed
			close(one.done)
		}
		b.waiting = nil
	} else if batch := b.take(); len(batch) > 0 {
		b.wg.Go(func() { b.send(batch) })
		return
	}
	b.flying--
}

// close waits for what was sent. Life has ended, so that nothing takes long.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}

// take takes those who go together. It needs the mutex.
func (b *batcher) take() (batch []*batched) {
	names := make(map[string]bool, min(len(b.waiting), maxBatch))
	rest := b.waiting[:0]
	for _, one := range b.waiting {
		if len(batch) == maxBatch || names[one.name] {
			rest = append(rest, one)
			continue
		}
		names[one.name] = true
		batch = append(batch, one)
	}
	clear(b.waiting[len(rest):])
	b.waiting = rest
	return batch
}

func (b *batcher) send(batch []*batched) {
	defer b.landed()
	ctx, cancel := context.WithTimeout(b.store.life, batchTimeout)
	defer cancel()
	if len(batch) == 1 {
		batch[0].resp, batch[0].err = b.store.txn(ctx, batch[0].txn)
		close(batch[0].done)
		return
	}
	all := &pb.TxnRequest{Success: make([]*pb.RequestOp, len(batch))}
	for i, one := range batch {
		all.Success[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: one.txn}}
	}
	resp, err := b.store.txn(ctx, all)
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition:
		// Refused because of one of them, before anything was done.
		inParallel(batch, func(one *batched) {
			one.resp, one.err = b.store.txn(ctx, one.txn)
			close(one.done)
		})
		return
	}
	for i, one := range batch {
		if one.err = err; err == nil {
			one.resp = resp.Responses[i].GetResponseTxn()
			one.resp.Header = resp.Header
		}
		close(one.done)
	}
}

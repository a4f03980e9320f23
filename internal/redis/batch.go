package redis

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// MaxInFlight is how many requests are in flight before further ones are batched: the
	// server does one thing at a time. If it is far away, batches follow a pause apart.
	MaxInFlight = 2
	batchPause  = 100 * time.Microsecond

	// maxBatch bounds a batch: how long its script holds up all other clients.
	maxBatch = 32

	// undoTimeout bounds how long a lock is given back that nobody waits for.
	undoTimeout = 5 * time.Second
)

// A batchCall takes a lock that nobody else wants, or releases it.
type batchCall struct {
	name        string
	id          store.ID
	ttl         time.Duration // 0 to release
	owner, meta string

	now   time.Duration // the server's
	value Value
	err   error
}

func (s *Store) initBatch() {
	s.life, s.end = context.WithCancel(context.Background())
	s.batch.Flying, s.batch.Size, s.batch.Pause = MaxInFlight, maxBatch, batchPause
	s.batch.Send = s.sendBatch
	s.batch.Late = s.undo
}

// batches reports whether calls can be batched at all. On a Cluster each has a server of its
// own, and replicas are waited for by one call each.
func (s *Store) batches() bool { return !s.config.Cluster && s.config.Replicas == 0 }

// take takes a lock in a batch with others if there are many, or else by acquire.
func (s *Store) take(ctx context.Context, req *store.Request) (answer store.Answer, err error) {
	call := &batchCall{name: req.Name, id: req.ID, ttl: req.TTL, owner: req.Owner, meta: req.Meta}
	alone, err := s.inBatch(ctx, call, func() error {
		answer, err = s.acquire(ctx, req)
		return err
	})
	switch v := call.value; {
	case alone || err != nil:
		return answer, err
	case v.Kind == Int && v.Int <= store.MaxToken:
		return store.Answer{Token: v.Int, Tokens: 1, TTL: req.TTL}, nil
	case len(v.List) == 3 && !req.Queue && strings.HasPrefix(v.List[0].Text, "P"):
		left := time.Duration(v.List[1].Int) * time.Millisecond
		holder, err := parsePlain(v.List[0].Text, call.now, left)
		if err == nil && holder.ID != req.ID {
			again := max(time.Millisecond, min(left, s.config.Heartbeat/2))
			return store.Answer{Refusal: &store.Refusal{Holders: []store.Holder{holder}, Highest: v.List[2].Int, Again: again}}, nil
		}
	}
	return s.acquire(ctx, req)
}

// giveBack releases a lock in a batch with others if there are many, or else by release.
func (s *Store) giveBack(ctx context.Context, name string, id store.ID) error {
	call := &batchCall{name: name, id: id}
	complete := func() error { return s.release(ctx, name, id, "release", store.Keep{}) }
	alone, err := s.inBatch(ctx, call, complete)
	if alone || err != nil || call.value.Int == 1 {
		return err
	}
	return complete()
}

// inBatch does a call, or runs alone instead if few are in flight.
func (s *Store) inBatch(ctx context.Context, call *batchCall, alone func() error) (wasAlone bool, err error) {
	late := s.batch.Do(ctx, call, func() {
		wasAlone = true
		err = alone()
	})
	switch {
	case wasAlone:
		return true, err
	case late != nil:
		return false, s.explain(ctx, late)
	case call.err != nil:
		return false, s.explain(ctx, call.err)
	}
	return false, nil
}

// HoldBatches keeps all calls but MaxInFlight waiting, however far the server is. It is for
// tests.
func HoldBatches(s *Store) { s.batch.Pause = 0 }

// InFlight is how many calls of a store that can be batched are in flight, or wait for that.
func InFlight(s *Store) int { return s.batch.Len() }

// sendBatch runs batch.lua.
func (s *Store) sendBatch(calls []*batchCall) {
	taken := 0
	keys := make([]string, 1, len(calls)+1)
	keys[0] = s.keys.counter(0)
	args := make([]string, 1, 1+2*len(calls))
	for _, c := range calls {
		keys = append(keys, s.keys.lock(0, c.name))
		if c.ttl == 0 {
			args = append(args, plainStart(c.id), "")
			continue
		}
		taken++
		args = append(args, plainStart(c.id)+"\t"+c.owner+"\t"+c.meta+"\t", millis(c.ttl))
	}
	args[0] = strconv.Itoa(taken)
	v, err := s.conn.Eval(s.life, Call{Script: batchScript, Keys: keys, Args: args})
	if err == nil && len(v.List) != len(calls)+1 {
		err = errRecord
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.now, c.value = time.Duration(v.List[0].Int)*time.Microsecond, v.List[i+1]
		}
	}
}

// undo gives back a lock that was taken for a caller that has given up. The caller's own Leave
// may have been quicker than the batch.
func (s *Store) undo(c *batchCall) {
	if c.ttl == 0 || c.err != nil || c.value.Kind != Int {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, undoTimeout)
	defer cancel()
	s.release(ctx, c.name, c.id, "leave", store.Keep{}) // or its TTL ends it
}

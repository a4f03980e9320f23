package redis

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// MaxInFlight is how many plain calls are in flight before further ones are batched: the
	// server does one thing at a time. If its replies take longer than batchPause, which is
	// more than a round trip to a server nearby, batches follow without waiting for them.
	MaxInFlight = 2
	batchPause  = 500 * time.Microsecond

	// maxBatch bounds a batch: how long its script holds up all other clients.
	maxBatch = 32

	// undoTimeout bounds how long a lock is given back that nobody waits for.
	undoTimeout = 5 * time.Second
)

// A plainCall takes a lock that nobody else wants, or releases it.
type plainCall struct {
	name   string
	record string        // as far as it is known before the lock is taken; all of it to release
	ttl    time.Duration // 0 to release
	floor  int64         // only with several counters
	now    time.Duration // the server's
	value  Value
	err    error
}

func (s *Store) initPlain() {
	s.life, s.end = context.WithCancel(context.Background())
	s.batch.Flying, s.batch.Size, s.batch.Pause = MaxInFlight, maxBatch, batchPause
	s.batch.Send = func(calls []*plainCall) { s.sendPlain(s.life, calls) }
	s.batch.Late = s.undo
}

// HoldBatches keeps all calls but MaxInFlight waiting, however far the server is. It is for
// tests.
func HoldBatches(s *Store) { s.batch.Pause = 0 }

// InFlight is how many plain calls of a store are in flight, or wait for that.
func InFlight(s *Store) int { return s.batch.Len() }

// take takes a lock by the plain lane. It is not ok if the complete one has to see to it.
func (s *Store) take(ctx context.Context, req *store.Request) (answer store.Answer, ok bool, err error) {
	call := &plainCall{name: req.Name, record: plainStart(req.ID) + "\t" + req.Owner + "\t" + req.Meta + "\t", ttl: req.TTL, floor: req.Floor}
	if err := s.plain(ctx, call); err != nil {
		return answer, false, err
	}
	switch v := call.value; {
	case v.Kind == Int:
		s.hints.taken(req.ID, call.granted())
		return store.Answer{Token: v.Int, Tokens: 1, TTL: req.TTL}, true, nil
	case len(v.List) == 2 && !req.Queue && strings.HasPrefix(v.List[0].Text, "P"):
		left := time.Duration(v.List[1].Int) * time.Millisecond
		holder, err := parsePlain(v.List[0].Text, call.now, left)
		if err == nil && holder.ID != req.ID {
			again := max(time.Millisecond, min(left, s.config.Heartbeat/2))
			return store.Answer{Refusal: &store.Refusal{Holders: []store.Holder{holder}, Again: again}}, true, nil
		}
	}
	return answer, false, nil
}

// granted is the record of a lock that was taken: see plain.lua.
func (c *plainCall) granted() string {
	return c.record + millis(c.now) + "\t1\t" + strconv.FormatInt(c.value.Int, 10)
}

// giveBack releases a lock by the plain lane. It is not done if the complete one has to see to
// it.
func (s *Store) giveBack(ctx context.Context, name, record string) (done bool, err error) {
	call := &plainCall{name: name, record: record}
	err = s.plain(ctx, call)
	return err == nil && call.value.Int == 1, err
}

// plain does a call, in a batch with others if there are many. On a Cluster each has a server
// of its own.
func (s *Store) plain(ctx context.Context, call *plainCall) error {
	alone := func() {
		if call.ttl > 0 {
			s.sendPlain(ctx, []*plainCall{call})
			return
		}
		// Removes the record if it is still there as it was written, and with it the key.
		call.value, call.err = s.conn.Do(ctx, "LREM", s.LockKey(call.name), "1", call.record)
	}
	var err error
	if s.config.Cluster {
		alone()
	} else {
		err = s.batch.Do(ctx, call, alone)
	}
	if err == nil {
		err = call.err
	}
	if err != nil {
		return s.explain(ctx, err)
	}
	return nil
}

// sendPlain runs plain.lua.
func (s *Store) sendPlain(ctx context.Context, calls []*plainCall) {
	taken := 0
	keys := make([]string, 1, len(calls)+1)
	keys[0] = s.keys.counter(s.keys.group(calls[0].name), calls[0].name)
	args := make([]string, 1, 1+2*len(calls))
	for _, c := range calls {
		ttl := ""
		if c.ttl > 0 {
			taken++
			ttl = millis(c.ttl)
		}
		keys = append(keys, s.LockKey(c.name))
		args = append(args, c.record, ttl)
	}
	args[0] = strconv.Itoa(taken)
	call := Call{Script: plainScript, Keys: keys, Args: args}
	if s.config.Counters > 1 {
		call = s.floors(calls)
	}
	v, err := s.evalInSlot(ctx, call)
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
func (s *Store) undo(c *plainCall) {
	if c.ttl == 0 || c.err != nil || c.value.Kind != Int {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, undoTimeout)
	defer cancel()
	s.conn.Do(ctx, "LREM", s.LockKey(c.name), "1", c.granted()) // or its TTL ends it
}

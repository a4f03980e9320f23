package rediscore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// maxInFlight is how many plain calls are in flight before further ones are batched. It is small because
	// the server runs one script at a time. If replies take longer than batchPause, which is more than a
	// round trip to a server nearby, batches do not wait for them.
	maxInFlight = 2
	batchPause  = 500 * time.Microsecond

	maxBatch = 32 // bounds how long the script of a batch keeps other clients waiting
)

// A plainCall takes or releases a lock through the plain lane.
type plainCall struct {
	id      store.ID // of the lock to take
	name    string
	record  string        // the record of the lock to take, without the part that the script adds
	ttl     time.Duration // 0 to release
	counter int           // of its token; -1 to release
	floor   int64
	now     time.Duration // by the server's clock
	value   any
	err     error
}

// takePlain takes a lock through the plain lane. If ok is false, the complete lane has to decide.
func (s *Store) takePlain(ctx context.Context, req *store.Request) (answer store.Answer, ok bool, err error) {
	call := &plainCall{id: req.ID, name: req.Name, record: "P" + req.ID.String() + "\t" + req.Owner + "\t" + req.Meta + "\t", ttl: req.TTL, counter: s.counterOf(req.Name), floor: req.Floor}
	if err := s.plain(ctx, call); err != nil {
		return answer, false, err
	}
	if token, granted := call.value.(int64); granted {
		s.hints.plain.put(req.ID, plainGrant{call.granted(), sinceBase()}, maxGrants)
		return store.Answer{Token: token, Tokens: 1, TTL: req.TTL}, true, nil
	}
	held := list(call.value)
	if len(held) != 2 || req.Queue || !strings.HasPrefix(text(held[0]), "P") {
		return answer, false, nil
	}
	left := time.Duration(number(held[1])) * time.Millisecond
	holder, _, err := parseHolder("1\t1\t0\t0\t"+millis(call.now+left)+"\t"+text(held[0])[1:], call.now)
	if err != nil || holder.ID == req.ID {
		return answer, false, nil
	}
	again := max(time.Millisecond, min(left, s.config.Heartbeat/2))
	return store.Answer{Refusal: &store.Refusal{Holders: []store.Holder{holder}, Again: again}}, true, nil
}

// granted returns the record of a lock that was taken: see plain.lua.
func (c *plainCall) granted() string {
	return c.record + millis(c.now) + "\t1\t" + decimal(number(c.value))
}

// plain makes a call, on a Cluster never as part of a batch, whose keys would be in different slots.
func (s *Store) plain(ctx context.Context, call *plainCall) error {
	alone := func() { s.sendPlain(ctx, []*plainCall{call}, call.id) }
	if call.ttl == 0 {
		alone = func() { // the key of a lock is removed with its record
			lrem := Call{Command: "LREM", Keys: []string{s.lockKey(call.name)}, Args: []string{"1", call.record}}
			call.value, call.err = s.run(ctx, lrem)
		}
	}
	if s.config.Cluster {
		alone()
	} else if late, err := s.batch.Do(ctx, call, alone); err != nil {
		if late != nil && call.ttl > 0 {
			s.late.add(call.id, late)
		}
		return s.explain(ctx, err)
	}
	return call.err
}

// sendPlain runs plain.lua. It changes the order of the calls. Taker is that of the Call.
func (s *Store) sendPlain(ctx context.Context, calls []*plainCall, taker store.ID) {
	if len(calls) > 1 {
		slices.SortStableFunc(calls, func(a, b *plainCall) int { return cmp.Compare(a.counter, b.counter) })
	}
	keys := make([]string, 0, 2*len(calls))
	args := make([]string, 0, 4*len(calls))
	for i, c := range calls {
		if c.ttl == 0 {
			keys, args = append(keys, s.lockKey(c.name)), append(args, c.record, "")
			continue
		}
		if i == 0 || calls[i-1].counter != c.counter {
			n, floor := 0, int64(0)
			for _, same := range calls[i:] {
				if same.counter != c.counter {
					break
				}
				n, floor = n+1, max(floor, same.floor)
			}
			keys, args = append(keys, s.counter(c.name)), append(args, strconv.Itoa(n), decimal(floor))
		}
		keys, args = append(keys, s.lockKey(c.name)), append(args, c.record, millis(c.ttl))
	}
	sent := sinceBase()
	v, err := s.run(ctx, Call{Script: plainScript, Keys: keys, Args: args, taker: taker})
	values := list(v)
	if err == nil && len(values) != len(calls)+1 {
		err = errRecord
	}
	if err == nil {
		s.observe(micros(values[0]), sent)
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.now, c.value = micros(values[0]), values[i+1]
		}
	}
}

package rediscore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/batch"
	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// DefaultHeartbeat is how long a waiter that stopped asking keeps its place in the queue, and delays the
	// next one. A live waiter asks about twice in that time.
	DefaultHeartbeat = 5 * time.Second

	minTTL   = 100 * time.Millisecond // several round trips to a server nearby
	maxBlock = 4096                   // tokens in a block; also in tokens.lua

	// closeWait is how long Close lets calls in flight finish. A client library whose connection is closed
	// during a call may dial again, and leave that connection open.
	closeWait = 500 * time.Millisecond
)

// Config describes the server of a Store.
type Config struct {
	Cluster   bool          // keys are spread over slots
	Counters  int           // number of token counters, chosen by a hash of the name; 0 means 1
	Replicas  int           // how many replicas must have a grant before it is returned
	Heartbeat time.Duration // DefaultHeartbeat if 0
	Timeout   time.Duration // time after which Conn itself ends a call; 0 if it does not
}

// A Store keeps locks on Redis servers. It implements store.Store.
type Store struct {
	conn   Conn
	config Config
	waits  waits
	hints  hints
	batch  batch.Batcher[plainCall]
	late   lateCalls
	calls  handle.Life
	clock  serverClock
}

// base is the zero of the client's own clock.
var base = time.Now()

func sinceBase() time.Duration { return time.Since(base) + 1 }

// New returns a store that uses a connection.
func New(conn Conn, config Config) (*Store, error) {
	if config.Replicas < 0 || config.Replicas > 100 {
		return nil, fmt.Errorf("%w: %d replicas: want how many replicas must confirm a grant, from 0 to 100", store.ErrInvalid, config.Replicas)
	}
	config.Heartbeat = cmp.Or(config.Heartbeat, DefaultHeartbeat)
	s := &Store{conn: conn, config: config, late: lateCalls{calls: make(map[store.ID]<-chan struct{})}}
	s.calls.Begin("redis store")
	s.waits = waits{store: s, handle: rand.Text(), all: make(map[wake.Key]*waiting), groups: make(map[string]*subscription)}
	s.batch.MaxInFlight, s.batch.MaxBatch, s.batch.MaxWait = maxInFlight, maxBatch, batchPause
	s.batch.Send = func(calls []*plainCall) bool { s.sendPlain(s.calls.Work, calls, store.ID{}); return false }
	return s, nil
}

// Capabilities returns what this store supports.
func (s *Store) Capabilities() store.Capabilities { return CapabilitiesOf(s.config) }

// CapabilitiesOf returns what a store with this configuration supports.
func CapabilitiesOf(config Config) store.Capabilities {
	return store.Capabilities{
		Store: "redis",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep |
			store.FeatureList | store.FeatureProcesses | store.FeatureHosts | store.FeatureDurable,
		MinTTL:    minTTL,
		Heartbeat: cmp.Or(config.Heartbeat, DefaultHeartbeat),
		Timeout:   config.Timeout,
	}
}

// Close ends this handle: see store.Store. It does not close a client of the program.
func (s *Store) Close() error {
	if !s.calls.Shut() {
		return nil
	}
	end := func() {
		s.waits.mu.Lock() // no subscription starts after this
		defer s.waits.mu.Unlock()
		s.calls.End()
	}
	timeout := time.AfterFunc(closeWait, end)
	s.calls.Wait()
	timeout.Stop()
	end()
	s.waits.wg.Wait()
	s.batch.Close()
	s.conn.Close()
	return nil
}

// Acquire makes one attempt to take a name: see store.Store, and store.SameClaim for a repeated request.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if err := s.calls.EnterCall(ctx); err != nil {
		return store.Answer{}, err
	}
	defer s.calls.Exit()
	if req.Floor >= store.MaxToken {
		return store.Answer{}, store.NoTokens(req.Floor)
	}
	if err := s.late.wait(ctx, req.ID); err != nil {
		return store.Answer{}, err
	}
	req.TTL = req.TTL.Truncate(time.Millisecond)
	req.Tokens = min(max(req.Tokens, 1), maxBlock)
	answer, queued := s.waits.pushed(&req)
	if answer.Token > 0 {
		return answer, nil
	}
	if req.Mode == store.Exclusive && req.Tokens == 1 && s.config.Replicas == 0 && !queued && !s.hints.isContended(req.Name) {
		answer, ok, err := s.takePlain(ctx, &req)
		if err != nil { // the lock may have been granted, which the complete lane recognises in one round trip
			s.hints.setContended(req.Name, true)
		}
		// A full server takes no new lock, but acquire.lua recognises what this identity has.
		if ok || err != nil && !strings.Contains(err.Error(), "OOM") {
			return answer, err
		}
	}
	return s.acquire(ctx, &req)
}

// acquire runs acquire.lua.
func (s *Store) acquire(ctx context.Context, req *store.Request) (store.Answer, error) {
	queue, waiter := "0", ""
	if req.Queue {
		channel, sent := s.waits.expect(req)
		queue, waiter = "1", channel+"\t"+decimal(int64(sent))+"\t"+millis(s.maxPushed(req))+"\t"+strconv.Itoa(req.Tokens)
	}
	asked := sinceBase()
	v, err := s.run(ctx, Call{
		Script: acquireScript, Keys: s.keys(req.Name), Replicas: s.config.Replicas, taker: req.ID,
		Args: []string{
			s.publish(), req.ID.String(), strconv.Itoa(int(req.Mode)), strconv.Itoa(req.Weight), strconv.Itoa(req.Limit),
			millis(req.TTL), strconv.Itoa(req.Tokens), decimal(req.Floor), queue, millis(s.config.Heartbeat),
			req.Owner + "\t" + req.Meta, waiter, strconv.Itoa(store.MaxHolders),
		},
	})
	if err != nil {
		return store.Answer{}, err
	}
	answer, err := parseAnswer(req, list(v))
	if err == nil {
		s.observe(micros(list(v)[1]), asked)
	}
	s.hints.setContended(req.Name, answer.Refusal != nil && req.Queue || answer.Waiters > 0)
	if req.Queue && err == nil && !answer.Granted() {
		s.waits.listen(req.Name, req.ID)
	} else {
		s.waits.forget(req.Name, req.ID)
	}
	return answer, err
}

// parseAnswer parses the reply of acquire.lua.
func parseAnswer(req *store.Request, reply []any) (answer store.Answer, err error) {
	if len(reply) < 3 {
		return answer, errRecord
	}
	n := make([]int64, 5)
	for i := 1; i < min(len(reply), len(n)); i++ {
		n[i] = number(reply[i])
	}
	switch what := text(reply[0]); {
	case what == "granted" && len(reply) >= 5 && n[3] < 1:
		return answer, store.NoTokens(max(req.Floor, n[2]-1))
	case what == "granted" && len(reply) >= 5:
		return store.Answer{Token: n[2], Tokens: int(n[3]), TTL: req.TTL, Waiters: int(n[4])}, nil
	case what == "refused" && len(reply) >= 5:
		r := &store.Refusal{Place: int(n[2]), Waiters: int(n[3]), Again: time.Duration(n[4]) * time.Millisecond}
		for _, record := range reply[5:] {
			h, _, err := parseHolder(text(record), micros(reply[1]))
			if err != nil {
				return answer, err
			}
			r.Holders = append(r.Holders, h)
		}
		return store.Answer{Refusal: r}, nil
	case what == "claim" && len(reply) == 4:
		return answer, cmp.Or(store.SameClaim(req, store.Mode(n[1]), int(n[2]), int(n[3])), errRecord)
	case what == "mix":
		return answer, store.Mixes(req.Name, req.Mode, req.Limit, store.Mode(n[1]), int(n[2]))
	}
	return answer, errRecord
}

// Release ends a grant, or keeps its name closed for a time: see store.Store.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	return s.release(ctx, name, id, "release", keep)
}

// Leave removes an identity from the queue and releases its grant: see store.Store, and lateCalls.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	defer s.waits.forget(name, id)
	if err := s.late.wait(ctx, id); err != nil {
		return err
	}
	return s.release(ctx, name, id, "leave", store.Keep{})
}

// Break ends a grant or a kept record by force: see store.Store.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.release(ctx, name, id, "break", store.Keep{})
}

// release runs release.lua, unless the plain lane can do it.
func (s *Store) release(ctx context.Context, name string, id store.ID, what string, keep store.Keep) error {
	if err := s.calls.EnterCall(ctx); err != nil {
		return err
	}
	defer s.calls.Exit()
	grant, ok := s.hints.plain.get(id, true)
	if ok && what == "release" && keep.State == store.Held && (sinceBase()-grant.since <= briefHold || s.config.Counters > 1) {
		call := &plainCall{name: name, record: grant.record, counter: -1}
		if err := s.plain(ctx, call); err != nil || call.value == int64(1) {
			return err
		}
	}
	call := Call{
		Script: releaseScript, Keys: s.keys(name),
		Args: []string{s.publish(), id.String(), what, strconv.Itoa(int(keep.State)), millis(max(keep.For, time.Millisecond))},
	}
	if keep.State != store.Held { // a failover must not open the name again
		call.Replicas = s.config.Replicas
	}
	v, err := s.run(ctx, call)
	switch l := list(v); {
	case err != nil:
		return err
	case v == int64(1):
		return nil
	case v == int64(0):
		return store.ErrNotHeld
	case len(l) == 2:
		return cmp.Or(store.CheckDone(keep, store.Mode(number(l[1]))), errRecord)
	}
	return errRecord
}

func (s *Store) publish() string {
	if s.config.Cluster {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

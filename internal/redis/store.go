package redis

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/batch"
	"github.com/holdfast-lock/holdfast/internal/lifetime"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// DefaultHeartbeat is how long a waiter that stopped asking keeps its place. A dead waiter
	// delays the next one by that much; a live one asks about twice in it, which is all that
	// waiting costs the server.
	DefaultHeartbeat = 5 * time.Second

	// minTTL is far above a round trip to a server nearby, so that a lease can be renewed
	// several times in it.
	minTTL = 100 * time.Millisecond

	// maxBlock bounds a block of tokens, so that no caller uses up what others need. It is
	// also how far tokens may be ahead of the clock: see LEAD in tokens.lua.
	maxBlock = 4096
)

// Config is what a Store needs to know about its server.
type Config struct {
	Name      string         // of the kind of store, for people
	Cluster   bool           // keys are spread over slots
	Counters  int            // of tokens, by a hash of the name; 0 means 1
	Replicas  int            // how many replicas must have a grant before it counts
	Features  store.Features // beyond those of every Redis
	Heartbeat time.Duration  // DefaultHeartbeat if 0
	Timeout   time.Duration  // of the connection itself; 0 if it is not known
}

// A Store keeps locks on a Redis server.
type Store struct {
	conn   Conn
	config Config
	keys   keys
	waits  waits
	hints  hints
	batch  batch.Batcher[plainCall]
	life   context.Context // of batches; ends with Close
	end    context.CancelFunc
	calls  lifetime.Lifetime
}

// base is the zero of our own clock.
var base = time.Now()

func sinceBase() time.Duration { return time.Since(base) + 1 }

// New returns a store on a connection.
func New(conn Conn, config Config) *Store {
	if config.Heartbeat == 0 {
		config.Heartbeat = DefaultHeartbeat
	}
	s := &Store{conn: conn, config: config, keys: newKeys(config.Cluster, config.Counters)}
	s.hints.brief = brief
	if config.Counters > 1 {
		s.hints.brief = longBrief
	}
	s.calls.Begin()
	s.waits.init(s)
	s.initPlain()
	return s
}

// Capabilities tells what this store can do.
func (s *Store) Capabilities() store.Capabilities { return CapabilitiesOf(s.config) }

// CapabilitiesOf tells what a store with this configuration can do.
func CapabilitiesOf(config Config) store.Capabilities {
	if config.Heartbeat == 0 {
		config.Heartbeat = DefaultHeartbeat
	}
	return store.Capabilities{
		Store: config.Name,
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep |
			store.FeatureList | store.FeatureProcesses | store.FeatureHosts | store.FeatureDurable | config.Features,
		MinTTL:    minTTL,
		Heartbeat: config.Heartbeat,
		Timeout:   config.Timeout,
	}
}

// Close ends this handle: its waiting calls end, and later ones fail with store.ErrClosed.
// Grants that were not released stay until their TTL is over. Closing again does nothing.
func (s *Store) Close() error {
	if !s.calls.Shut() {
		return nil
	}
	timeout := time.AfterFunc(closeWait, s.calls.End)
	s.calls.Wait()
	timeout.Stop()
	s.calls.End()
	s.waits.close()
	s.end()
	s.batch.Close()
	s.conn.Close()
	return nil
}

// enter begins a call. If it returns nil, calls.Leave must follow.
func (s *Store) enter(ctx context.Context) error {
	if !s.calls.Enter() {
		return s.errClosed()
	}
	if err := ctx.Err(); err != nil {
		s.calls.Leave()
		return err
	}
	return nil
}

// closeWait is how long Close lets calls in flight finish. A connection that is closed under
// a call that is about to use it can be made anew by the client library, and stay.
const closeWait = 500 * time.Millisecond

// Acquire makes one attempt to take a name: see store.Store. Asking again under the identity
// of a live grant or waiter in another mode, weight or limit is an ErrInvalid.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if err := s.enter(ctx); err != nil {
		return store.Answer{}, err
	}
	defer s.calls.Leave()
	if req.Floor >= store.MaxToken {
		return store.Answer{}, tokensOver(req.Floor)
	}
	req.TTL = req.TTL.Truncate(time.Millisecond)
	req.Tokens = min(max(req.Tokens, 1), maxBlock)
	if answer, ok := s.waits.granted(&req); ok {
		return answer, nil
	}
	if req.Mode == store.Exclusive && req.Tokens == 1 && (req.Floor == 0 || s.config.Counters > 1) && s.config.Replicas == 0 &&
		!s.waits.queued(req.Name, req.ID) && !s.hints.isContended(req.Name) {
		answer, ok, err := s.take(ctx, &req)
		if err != nil {
			// It may have been granted. If it is repeated, acquire.lua recognises that in one round trip.
			s.hints.contended(req.Name, true)
		}
		// A full server refuses to take a lock, but acquire.lua recognises a grant of this identity.
		if ok || err != nil && !strings.Contains(err.Error(), "OOM") {
			return answer, err
		}
	}
	return s.acquire(ctx, &req)
}

// acquire runs acquire.lua.
func (s *Store) acquire(ctx context.Context, req *store.Request) (store.Answer, error) {
	group := s.keys.group(req.Name)
	queue, waiter := "0", ""
	if req.Queue {
		channel, sent := s.waits.expect(group, req)
		queue, waiter = "1", channel+"\t"+strconv.FormatInt(int64(sent), 10)+"\t"+millis(s.unasked(req))+"\t"+strconv.Itoa(req.Tokens)
	}
	v, err := s.eval(ctx, Call{
		Script: acquireScript, Keys: s.keys.all(group, req.Name), Replicas: s.config.Replicas,
		Args: []string{
			s.publish(), req.ID.String(), strconv.Itoa(int(req.Mode)), strconv.Itoa(req.Weight), strconv.Itoa(req.Limit),
			millis(req.TTL), strconv.Itoa(req.Tokens), strconv.FormatInt(req.Floor, 10), queue, millis(s.config.Heartbeat),
			req.Owner + "\t" + req.Meta, waiter, strconv.Itoa(store.MaxHolders),
		},
	})
	if err != nil {
		return store.Answer{}, err
	}
	answer, err := parseAnswer(req, v)
	s.hints.contended(req.Name, answer.Refusal != nil && req.Queue || answer.Waiters > 0)
	if req.Queue && err == nil && !answer.Granted() {
		s.waits.listen(req.Name, req.ID)
	} else {
		s.waits.forget(req.Name, req.ID)
	}
	return answer, err
}

// unasked is for how long a waiting request may be granted the name without asking again: as
// long as a waiter is taken to be alive. Replicas confirm only what is asked for.
func (s *Store) unasked(req *store.Request) time.Duration {
	if req.Mode != store.Exclusive || req.Floor > 0 || s.config.Replicas > 0 {
		return 0
	}
	return min(req.TTL, s.config.Heartbeat).Truncate(time.Millisecond)
}

// parseAnswer reads what acquire.lua returned.
func parseAnswer(req *store.Request, v Value) (answer store.Answer, err error) {
	list := v.List
	what := ""
	if len(list) > 2 {
		what = list[0].Text
	}
	switch {
	case what == "granted" && len(list) == 5:
		answer = store.Answer{Token: list[2].Int, Tokens: int(list[3].Int), TTL: req.TTL, Waiters: int(list[4].Int)}
		if answer.Tokens < 1 {
			return store.Answer{}, tokensOver(max(req.Floor, answer.Token-1))
		}
		return answer, nil
	case what == "refused" && len(list) >= 5:
		r := &store.Refusal{
			Place: int(list[2].Int), Waiters: int(list[3].Int), Again: time.Duration(list[4].Int) * time.Millisecond,
		}
		for _, holder := range list[5:] {
			h, _, err := parseHolder(holder.Text, time.Duration(list[1].Int)*time.Microsecond)
			if err != nil {
				return answer, err
			}
			r.Holders = append(r.Holders, h)
		}
		return store.Answer{Refusal: r}, nil
	case what == "claim" && len(list) == 4:
		return answer, cmp.Or(store.SameClaim(req, store.Mode(list[1].Int), int(list[2].Int), int(list[3].Int)), errRecord)
	case what == "mix":
		return answer, store.Mixes(req.Name, req.Mode, req.Limit, store.Mode(list[1].Int), int(list[2].Int))
	}
	return answer, errRecord
}

// Release ends a grant or closes its name for a time: see store.Store.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Leave()
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	if record := s.hints.released(id); record != "" && keep.State == store.Held {
		if done, err := s.giveBack(ctx, name, record); done || err != nil {
			return err
		}
	}
	return s.release(ctx, name, id, "release", keep)
}

// Leave takes an identity out of the queue and gives back its grant: see store.Store.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Leave()
	defer s.waits.forget(name, id)
	return s.release(ctx, name, id, "leave", store.Keep{})
}

// Break ends a grant or a closure by force: see store.Store.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Leave()
	return s.release(ctx, name, id, "break", store.Keep{})
}

// release runs release.lua.
func (s *Store) release(ctx context.Context, name string, id store.ID, what string, keep store.Keep) error {
	v, err := s.eval(ctx, Call{
		Script: releaseScript, Keys: s.keys.all(s.keys.group(name), name),
		Args: []string{s.publish(), id.String(), what, strconv.Itoa(int(keep.State)), millis(max(keep.For, time.Millisecond))},
	})
	switch {
	case err != nil:
		return err
	case len(v.List) == 2:
		return fmt.Errorf("%w: keep as done: the grant is %s; only an exclusive one can close its name as done", store.ErrInvalid, store.Mode(v.List[1].Int))
	case v.Kind != Int:
		return errRecord
	case v.Int == 0:
		return store.ErrNotHeld
	}
	return nil
}

func (s *Store) publish() string {
	if s.config.Cluster {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func tokensOver(floor int64) error {
	return fmt.Errorf("%w: token floor %d: no tokens are left above it, they end at 2^53-1; find out where so high a floor comes from", store.ErrInvalid, floor)
}

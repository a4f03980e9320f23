package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/batch"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// DefaultHeartbeat is how long a waiter that stopped asking keeps its place. A dead one
	// delays the next by that much; a live one asks about twice in it, which is the whole
	// load of waiting.
	DefaultHeartbeat = 5 * time.Second

	// minTTL is far above a round trip to a server nearby, so that a lease can be renewed
	// several times in it.
	minTTL = 100 * time.Millisecond

	// clockEvery is how often a client asks for the server's clock, and clockError how far
	// its own may go wrong in between. It must not be ahead of the server's, which is what
	// tokens count from when the counter was lost.
	clockEvery = 10 * time.Second
	clockError = 2 * time.Millisecond

	// maxBlock bounds a block of tokens, so that no caller uses up what others need. It is
	// also how far tokens may be ahead of the clock: see LEAD in state.lua.
	maxBlock = 4096
)

// Config is what a Store needs to know about its server.
type Config struct {
	Name      string         // of the kind of store, for people
	Cluster   bool           // keys are spread over slots
	Replicas  int            // how many of them must have a grant before it counts
	Features  store.Features // beyond those of every Redis
	Heartbeat time.Duration  // DefaultHeartbeat if 0
	Timeout   time.Duration  // of the connection itself; 0 if it is not known
}

// A Store keeps locks on a Redis server.
type Store struct {
	conn   Conn
	config Config
	keys   keys
	clocks []clock // by group

	waits waits

	grants grants

	many batch.Batcher[plainCall]
	life context.Context // of what is sent for many
	end  context.CancelFunc

	closed atomic.Bool
}

// A clock is what is known of the time of a group's server.
type clock struct {
	asked  atomic.Int64 // when it told it, since base, in ns; 0 is never
	offset atomic.Int64 // from since base to the server's time, in ns
}

// base is the zero of our own clock.
var base = time.Now()

func sinceBase() time.Duration { return time.Since(base) + 1 }

// New returns a store on a connection.
func New(conn Conn, config Config) *Store {
	if config.Heartbeat == 0 {
		config.Heartbeat = DefaultHeartbeat
	}
	s := &Store{conn: conn, config: config, keys: newKeys(config.Cluster)}
	s.clocks = make([]clock, len(s.keys.tags))
	s.waits.init(s)
	s.initMany()
	return s
}

// Capabilities tells what this store can do.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: s.config.Name,
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep |
			store.FeatureList | store.FeatureProcesses | store.FeatureHosts | store.FeatureDurable | s.config.Features,
		MinTTL:    minTTL,
		Heartbeat: s.config.Heartbeat,
		Timeout:   s.config.Timeout,
	}
}

// Close ends this handle: its waiting calls end, and later ones fail with store.ErrClosed.
// What was taken through it and not released stays until its TTL is over. Closing again
// does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.waits.close()
	s.end()
	s.many.Close()
	s.conn.Close()
	return nil
}

func (s *Store) errClosed() error { return fmt.Errorf("%s store: %w", s.config.Name, store.ErrClosed) }

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return s.errClosed()
	}
	return ctx.Err()
}

// Acquire makes one attempt to take a name: see store.Store. Asking again under the identity
// of a live grant or waiter in another mode, weight or limit is an ErrInvalid.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if err := s.usable(ctx); err != nil {
		return store.Answer{}, err
	}
	if req.Floor >= store.MaxToken {
		return store.Answer{}, tokensOver(req.Floor)
	}
	if answer, ok := s.waits.granted(&req); ok {
		return answer, nil
	}
	req.TTL = req.TTL.Truncate(time.Millisecond)
	req.Tokens = min(max(req.Tokens, 1), maxBlock)
	group := s.keys.group(req.Name)
	if req.Mode == store.Exclusive && req.Floor == 0 {
		queued, crowded := s.waits.look(req.Name, req.ID)
		// A block of tokens must not run ahead of the clock, which take.lua does not look at.
		if now, known := s.clocks[group].at(sinceBase()); known && req.Tokens == 1 && !queued && !crowded {
			answer, ok, err := s.take(ctx, group, &req, now)
			if ok || err != nil {
				return answer, err
			}
		}
		if req.Queue && !queued && (crowded || req.Tokens == 1) {
			answer, ok, err := s.join(ctx, group, &req)
			if ok || err != nil {
				return answer, err
			}
		}
	}
	return s.acquire(ctx, group, &req)
}

// at is the server's time, if it is known.
func (c *clock) at(now time.Duration) (server time.Duration, known bool) {
	asked := time.Duration(c.asked.Load())
	return now + time.Duration(c.offset.Load()) - clockError, asked != 0 && now-asked < clockEvery
}

// take is the plain way: see take.lua. It is not ok if the whole state is needed. Now is the
// server's time.
func (s *Store) take(ctx context.Context, group int, req *store.Request, now time.Duration) (answer store.Answer, ok bool, err error) {
	record := plainRecord(req.ID, now, req.Owner, req.Meta)
	call := &plainCall{key: s.keys.lock(group, req.Name), record: record, ttl: millis(req.TTL)}
	v, err := s.plain(ctx, call, func() (Value, error) {
		return s.conn.Eval(ctx, Call{
			Script:   take,
			Keys:     []string{call.key, s.keys.counter(group)},
			Args:     []string{record, call.ttl, strconv.FormatInt(now.Microseconds(), 10)},
			Replicas: s.config.Replicas,
			Patience: s.patience(ctx),
		})
	})
	switch {
	case err != nil:
		return answer, false, err
	case v.Kind == Int:
		if v.Int > store.MaxToken {
			return answer, false, tokensOver(v.Int)
		}
		s.grants.note(req.ID, record+strconv.FormatInt(v.Int, 10), sinceBase())
		return store.Answer{Token: v.Int, Tokens: 1, TTL: req.TTL}, true, nil
	case v.Kind != List || len(v.List) != 3 || req.Queue || !strings.HasPrefix(v.List[0].Text, "P"):
		return answer, false, nil
	}
	left := time.Duration(v.List[1].Int) * time.Millisecond
	holder, err := parsePlain(v.List[0].Text, now, left)
	if err != nil || holder.ID == req.ID {
		return answer, false, nil
	}
	answer.Refusal = &store.Refusal{
		Holders: []store.Holder{holder}, Highest: v.List[2].Int,
		Again: max(time.Millisecond, min(left, s.config.Heartbeat/2)),
	}
	return answer, true, nil
}

// join is the usual way to a name that others want too: see join.lua. It is not ok if the
// whole state is needed.
func (s *Store) join(ctx context.Context, group int, req *store.Request) (answer store.Answer, ok bool, err error) {
	who := req.Owner + "\t" + req.Meta
	sent := sinceBase()
	channel := s.waits.expect(group, req)
	v, err := s.eval(ctx, Call{
		Script: join, Keys: s.keys.all(group, req.Name), Replicas: s.config.Replicas,
		Args: []string{
			req.ID.String(), millis(req.TTL), strconv.Itoa(req.Tokens), millis(s.config.Heartbeat), who,
			channel + "\t" + strconv.FormatInt(int64(sent), 10) + "\t" + millis(s.unasked(req)) + "\t" + who,
		},
	})
	if err != nil || v.Kind != List {
		return answer, false, err
	}
	answer, err = s.answered(group, req, channel, v)
	return answer, true, err
}

// acquire asks in view of the whole state: see acquire.lua.
func (s *Store) acquire(ctx context.Context, group int, req *store.Request) (store.Answer, error) {
	channel, queue, sent := "", "0", sinceBase()
	if req.Queue {
		queue = "1"
		channel = s.waits.expect(group, req)
	}
	v, err := s.eval(ctx, Call{
		Script: acquire, Keys: s.keys.all(group, req.Name), Replicas: s.config.Replicas,
		Args: []string{
			s.publish(), req.ID.String(), strconv.Itoa(int(req.Mode)), strconv.Itoa(req.Weight), strconv.Itoa(req.Limit),
			millis(req.TTL), strconv.Itoa(req.Tokens), strconv.FormatInt(req.Floor, 10), queue,
			millis(s.config.Heartbeat), channel, req.Owner, req.Meta, strconv.Itoa(store.MaxHolders),
			strconv.FormatInt(int64(sent), 10), millis(s.unasked(req)),
		},
	})
	if err != nil {
		return store.Answer{}, err
	}
	return s.answered(group, req, channel, v)
}

// unasked is for how long a request that waits may be granted without asking again: as long
// as a waiter is taken to be alive. Replicas confirm what is asked for only.
func (s *Store) unasked(req *store.Request) time.Duration {
	if req.Mode != store.Exclusive || req.Floor > 0 || s.config.Replicas > 0 {
		return 0
	}
	return min(req.TTL, s.config.Heartbeat).Truncate(time.Millisecond)
}

// answered reads the answer of join.lua or acquire.lua and notes what it means for who waits.
func (s *Store) answered(group int, req *store.Request, channel string, v Value) (store.Answer, error) {
	answer, err := s.parseAnswer(group, req, v)
	s.waits.crowd(req.Name, answer.Refusal != nil && req.Queue || answer.Waiters > 0)
	if err != nil || answer.Granted() || !req.Queue {
		s.waits.forget(req.Name, req.ID)
	} else {
		s.waits.queued(req.Name, req.ID, channel)
	}
	return answer, err
}

func (s *Store) parseAnswer(group int, req *store.Request, v Value) (answer store.Answer, err error) {
	list := v.List
	what := ""
	if len(list) > 2 {
		what = list[0].Text
	}
	switch {
	case what == "granted" && len(list) == 5:
		s.noteClock(group, list[1].Int)
		answer = store.Answer{Token: list[2].Int, Tokens: int(list[3].Int), TTL: req.TTL, Waiters: int(list[4].Int)}
		if answer.Tokens < 1 {
			return store.Answer{}, tokensOver(max(req.Floor, answer.Token-1))
		}
		return answer, nil
	case what == "refused" && len(list) >= 6:
		s.noteClock(group, list[1].Int)
		r := &store.Refusal{
			Highest: list[2].Int, Place: int(list[3].Int), Waiters: int(list[4].Int),
			Again: time.Duration(list[5].Int) * time.Millisecond,
		}
		for _, holder := range list[6:] {
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

// noteClock notes the server's time, which it told in its answer.
func (s *Store) noteClock(group int, micro int64) {
	c, now := &s.clocks[group], sinceBase()
	c.offset.Store(int64(time.Duration(micro)*time.Microsecond - now))
	c.asked.Store(int64(now))
}

// Release ends a grant or closes its name for a time: see store.Store.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	if keep.State == store.Held {
		if done, err := s.pass(ctx, name, id); done || err != nil {
			return err
		}
	}
	return s.finish(ctx, name, id, "release", keep)
}

// pass is the usual way to give up a name that is held alone. It is not done if the whole
// state is needed.
func (s *Store) pass(ctx context.Context, name string, id store.ID) (done bool, err error) {
	group := s.keys.group(name)
	if record := s.grants.brief(id); record != "" {
		// Removes the record if it is still there as it was written, and with it the key.
		call := &plainCall{key: s.keys.lock(group, name), record: record}
		v, err := s.plain(ctx, call, func() (Value, error) { return s.conn.Do(ctx, "LREM", call.key, "1", record) })
		if err != nil {
			return false, err
		}
		if v.Int == 1 {
			s.grants.forget(id)
			return true, nil
		}
	}
	v, err := s.eval(ctx, Call{Script: pass, Keys: s.keys.all(group, name), Args: []string{s.publish(), id.String()}})
	if err != nil || v.Int != 1 {
		return false, err
	}
	s.grants.forget(id)
	return true, nil
}

// Leave takes an identity out of the queue and gives back its grant: see store.Store.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	defer s.waits.forget(name, id)
	return s.finish(ctx, name, id, "leave", store.Keep{})
}

// Break ends a grant or a closure by force: see store.Store.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.finish(ctx, name, id, "break", store.Keep{})
}

// finish runs release.lua.
func (s *Store) finish(ctx context.Context, name string, id store.ID, what string, keep store.Keep) error {
	v, err := s.eval(ctx, Call{
		Script: release, Keys: s.keys.all(s.keys.group(name), name),
		Args: []string{s.publish(), id.String(), what, strconv.Itoa(int(keep.State)), millis(max(keep.For, time.Millisecond))},
	})
	switch {
	case err != nil:
		return err
	case len(v.List) == 2:
		return fmt.Errorf("%w: keep as done: the grant is %s; only an exclusive one can close its name as done", store.ErrInvalid, store.Mode(v.List[1].Int))
	case v.Kind != Int:
		return errRecord
	}
	s.grants.forget(id)
	if v.Int == 0 {
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

// eval runs one script.
func (s *Store) eval(ctx context.Context, call Call) (Value, error) {
	call.Patience = s.patience(ctx)
	v, err := s.conn.Eval(ctx, call)
	if err != nil {
		return v, s.explain(ctx, err)
	}
	return v, nil
}

// patience is how long to wait for replicas: a good part of what the call has.
func (s *Store) patience(ctx context.Context) time.Duration {
	const most = 2 * time.Second
	if end, ok := ctx.Deadline(); ok {
		return min(most, max(time.Millisecond, time.Until(end)*3/4))
	}
	return most
}

// explain makes an error one that says what to do.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case s.closed.Load():
		return s.errClosed()
	case ctx.Err() != nil && !errors.As(err, new(*ReplicasError)):
		return ctx.Err()
	}
	text := err.Error()
	for _, known := range []struct{ word, advice string }{
		{"NOPERM", noRights},
		{"The user executing the script", noRights},
		{"MOVED", "this is a node of a Cluster: write redis+cluster://"},
		{"NOAUTH", "the server wants a user or password: put it into the URL, as in redis://user:password@host"},
		{"WRONGPASS", "user or password are wrong: check those of the URL"},
		{"READONLY", "this is a replica: give the address of the primary, or use Sentinel or Cluster"},
		{"OOM", "the server has no memory left: raise maxmemory, with maxmemory-policy noeviction"},
		{"MISCONF", "the server cannot save its data: see its log, and its disk"},
		{"LOADING", "the server is starting; it answers when it has read its data"},
		{"WRONGTYPE", "another program uses keys that begin with " + Prefix},
	} {
		if strings.Contains(text, known.word) {
			return fmt.Errorf("%s store: %w: %s", s.config.Name, err, known.advice)
		}
	}
	return fmt.Errorf("%s store: %w", s.config.Name, err)
}

const noRights = "the user of the URL may not do this: give it the rights that the package documentation lists"

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func tokensOver(floor int64) error {
	return fmt.Errorf("%w: token floor %d: no tokens are left above it, they end at 2^53-1; find out where so high a floor comes from", store.ErrInvalid, floor)
}

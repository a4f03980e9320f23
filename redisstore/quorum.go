package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/internal/stores/tlsurl"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	reopenAfter  = 250 * time.Millisecond // pause before connecting again to a node that could not be reached
	hangAfter    = quorum.DefaultTimeout  // how long to wait for the other nodes when a majority is connected
	paramTimeout = "timeout"
	paramRestart = "restart"
)

func init() {
	open := func(ctx context.Context, u *store.URL) (store.Store, error) {
		return openQuorumWith(ctx, u, rediscore.Config{})
	}
	store.Register("quorum+redis", open)
	store.Register("quorum+rediss", open)
}

// openQuorumWith opens a quorum of a majority of the servers, and connects to the others later.
func openQuorumWith(ctx context.Context, u *store.URL, config rediscore.Config) (store.Store, error) {
	opts, err := quorumOptions(u)
	if err != nil {
		return nil, err
	}
	config.Counters = rediscore.QuorumCounters
	nodes := make([]quorum.Node, len(u.Hosts))
	all := make([]*quorumNode, len(u.Hosts))
	for i, host := range u.Hosts {
		one := *u
		one.Scheme = strings.TrimPrefix(u.Scheme, "quorum+")
		one.Hosts = []string{host}
		one.Query = maps.Clone(u.Query)
		one.Query.Del(paramTimeout)
		one.Query.Del(paramRestart)
		all[i] = &quorumNode{url: &one, config: config}
		if _, err := optionOf(&one, new(rediscore.Config)); err != nil {
			return nil, err
		}
		nodes[i] = quorum.Node{Name: host, Store: all[i]}
	}
	if err = openMost(ctx, u, all); err == nil {
		var s *quorum.Store
		if s, err = quorum.New(ctx, nodes, opts); err == nil {
			return s, nil
		}
	}
	for _, n := range all {
		n.Close()
	}
	return nil, err
}

func quorumOptions(u *store.URL) (opts quorum.Options, err error) {
	if len(u.Hosts) < 3 {
		return opts, fmt.Errorf("%w: %s URL: %d hosts: a quorum needs at least 3, best an odd number: write %s://HOST:6379,HOST:6379,HOST:6379", store.ErrInvalid, u.Scheme, len(u.Hosts), u.Scheme)
	}
	for i, host := range u.Hosts {
		if slices.Contains(u.Hosts[:i], host) {
			return opts, fmt.Errorf("%w: %s URL: %s is listed twice: every node must be a server of its own", store.ErrInvalid, u.Scheme, host)
		}
	}
	params := []string{paramTimeout, paramRestart}
	if u.Scheme == "quorum+rediss" {
		params = append(params, tlsurl.Params...)
	}
	if err := u.Only(params...); err != nil {
		return opts, err
	}
	if text := u.Query.Get(paramTimeout); text != "" {
		if opts.Timeout, err = time.ParseDuration(text); err != nil || opts.Timeout < time.Millisecond {
			return opts, fmt.Errorf("%w: %s URL: %s=%.40q: want how long a call to one node may take, such as 500ms", store.ErrInvalid, u.Scheme, paramTimeout, text)
		}
	}
	switch text := u.Query.Get(paramRestart); text {
	case "":
	case "off":
		opts.RestartDelay = -1
	default:
		if opts.RestartDelay, err = time.ParseDuration(text); err != nil || opts.RestartDelay < time.Millisecond {
			return opts, fmt.Errorf("%w: %s URL: %s=%.40q: want how long a node is excluded after its restart, such as 30s and at least the largest TTL in use, or off", store.ErrInvalid, u.Scheme, paramRestart, text)
		}
	}
	return opts, nil
}

// openMost connects to all nodes. It fails if a majority cannot be reached, or if a node rejects the URL.
func openMost(ctx context.Context, u *store.URL, all []*quorumNode) error {
	majority := len(all)/2 + 1
	errs := slices.Repeat([]error{errConnecting}, len(all))
	type outcome struct {
		node int
		err  error
	}
	done := make(chan outcome, len(all))
	for i, n := range all {
		go func() {
			_, err := n.connect(ctx)
			done <- outcome{i, err}
		}()
	}
	var enough <-chan time.Time
	connected := 0
	for pending := len(all); pending > 0; pending-- {
		select {
		case o := <-done:
			if errs[o.node] = o.err; o.err == nil {
				connected++
			}
		case <-enough:
			pending = 0 // the other nodes continue to connect
		}
		if connected >= majority && enough == nil {
			enough = time.After(hangAfter)
		}
	}
	var failed []string
	for i, err := range errs {
		if errors.Is(err, store.ErrInvalid) {
			return err
		}
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", all[i].url.Hosts[0], err))
		}
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", u, ctx.Err())
	case connected < majority:
		return fmt.Errorf("%s: %d of %d nodes answered, %d are needed: %s", u, connected, len(all), majority, strings.Join(failed, "; "))
	}
	return nil
}

// A quorumNode is a server of a quorum. The client library makes no client while the server cannot be reached.
type quorumNode struct {
	url    *store.URL
	config rediscore.Config
	store  atomic.Pointer[Store]

	stop   atomic.Pointer[context.CancelFunc] // ends the attempt to connect
	mu     sync.Mutex                         // held while connecting
	tried  time.Time
	err    error // of the last attempt
	closed bool
}

var errConnecting = errors.New("connecting")

// get returns the store, and connects if necessary.
func (n *quorumNode) get(ctx context.Context) (*Store, error) {
	if s := n.store.Load(); s != nil {
		return s, nil
	}
	var s *Store
	err := errConnecting
	if n.mu.TryLock() {
		recently := time.Since(n.tried) < reopenAfter
		err = n.err
		n.mu.Unlock()
		if !recently || err == nil {
			s, err = n.connect(ctx)
		}
	}
	if err != nil { // tell that nothing was sent; an error of the store contract would not be about one node
		return nil, &net.OpError{Op: "dial", Err: errors.New(err.Error())}
	}
	return s, nil
}

// on calls the store of a node, and connects if necessary.
func on[T any](ctx context.Context, n *quorumNode, call func(*Store) (T, error)) (result T, err error) {
	s, err := n.get(ctx)
	if err != nil {
		return result, err
	}
	return call(s)
}

func (n *quorumNode) connect(ctx context.Context) (*Store, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, store.ErrClosed
	}
	if s := n.store.Load(); s != nil {
		return s, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.stop.Store(&cancel)
	s, err := openWith(ctx, n.url, n.config)
	n.tried, n.err = time.Now(), err
	if err != nil {
		return nil, err
	}
	n.store.Store(s)
	return s, nil
}

// Connections returns how many connections were opened, and clocks set, so far: see [quorum.Restarter].
func (n *quorumNode) Connections() uint64 {
	if s := n.store.Load(); s != nil {
		jumps, _ := s.core.ClockJumps()
		return s.conn.owned.made.Load() + jumps
	}
	return 0
}

// Server returns the server's run ID, uptime and clock: see [quorum.Restarter].
func (n *quorumNode) Server(ctx context.Context) (server quorum.Server, err error) {
	s, err := n.get(ctx)
	if err != nil {
		return server, err
	}
	client, sent := s.conn.client, time.Now()
	replies := client.DoMulti(cancellable{ctx}, client.B().Info().Section("server").Build(), client.B().Time().Build())
	info, err := replies[0].ToString()
	if err != nil {
		return server, fmt.Errorf("%w: the user of the URL must be allowed to run INFO", err)
	}
	if clock, err := replies[1].AsIntSlice(); err == nil && len(clock) == 2 {
		server.Clock = time.Unix(clock[0], clock[1]*int64(time.Microsecond))
		s.core.ObserveClock(server.Clock, sent) // from now on, even if the client makes its first request much later
	}
	fields := rediscore.Fields(info)
	server.ID = fields["run_id"]
	// The server counts from the second in which it started, so the value may be one second too high. A server
	// that does not tell it counts as one that has just started.
	seconds, _ := strconv.Atoi(fields["uptime_in_seconds"])
	server.Uptime = max(0, time.Duration(seconds-1)*time.Second)
	if jumps, last := s.core.ClockJumps(); jumps > 0 {
		server.Jumped = time.Since(last) + 1
	}
	if server.ID == "" {
		return server, errors.New("INFO has no run_id: is this a Redis server?")
	}
	return server, nil
}

var persistenceCheck = diagnosis.New("quorum.persistence", store.LevelWarning,
	"if a majority of the nodes loses its data within one TTL, for example in a power cut, locks that are held are given to others; kept records of Once and MinHold end when nodes restart one after the other",
	"appendonly yes on all nodes")

// Diagnose checks the server: see [store.Diagnoser]. The quorum itself reports whether the node answers and
// whether its grants count. A node without persistence is less of a risk than a single server without it.
func (n *quorumNode) Diagnose(ctx context.Context, ttl time.Duration) (findings []store.Finding) {
	s, err := n.get(ctx)
	if err != nil {
		return nil
	}
	for _, f := range s.Diagnose(ctx, ttl) {
		switch f.ID {
		case "redis.answers", "redis.uptime":
			continue
		case "redis.persistence":
			f.ID = persistenceCheck.ID
			if f.Level != store.LevelOK && f.Level != store.LevelUnknown {
				f.Level, f.Risk, f.Remedy = persistenceCheck.Level, persistenceCheck.Risk, persistenceCheck.Remedy
			}
		}
		findings = append(findings, f)
	}
	return findings
}

func (n *quorumNode) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	return on(ctx, n, func(s *Store) (store.Answer, error) { return s.Acquire(ctx, req) })
}

func (n *quorumNode) Wait(ctx context.Context, name string, id store.ID) error {
	_, err := on(ctx, n, func(s *Store) (struct{}, error) { return struct{}{}, s.Wait(ctx, name, id) })
	return err
}

func (n *quorumNode) Leave(ctx context.Context, name string, id store.ID) error {
	_, err := on(ctx, n, func(s *Store) (struct{}, error) { return struct{}{}, s.Leave(ctx, name, id) })
	return err
}

func (n *quorumNode) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	return on(ctx, n, func(s *Store) ([]store.Renewed, error) { return s.Renew(ctx, grants) })
}

func (n *quorumNode) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	_, err := on(ctx, n, func(s *Store) (struct{}, error) { return struct{}{}, s.Release(ctx, name, id, keep) })
	return err
}

func (n *quorumNode) List(ctx context.Context, q store.Query) (store.Page, error) {
	return on(ctx, n, func(s *Store) (store.Page, error) { return s.List(ctx, q) })
}

func (n *quorumNode) Break(ctx context.Context, name string, id store.ID) error {
	_, err := on(ctx, n, func(s *Store) (struct{}, error) { return struct{}{}, s.Break(ctx, name, id) })
	return err
}

// Capabilities returns the same for all nodes, connected or not.
func (n *quorumNode) Capabilities() store.Capabilities {
	if s := n.store.Load(); s != nil {
		return s.Capabilities()
	}
	config := n.config
	config.Timeout = callTimeout
	return rediscore.CapabilitiesOf(config)
}

func (n *quorumNode) Close() error {
	if stop := n.stop.Load(); stop != nil {
		(*stop)()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if s := n.store.Load(); s != nil {
		return s.Close()
	}
	return nil
}

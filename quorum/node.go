package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/await"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// A node is skipped while maxInFlight calls to it are unanswered and it has been silent for
	// longer than both the time limit of a call and leastSilence. Otherwise a hung node would
	// collect goroutines at the rate of calls.
	maxInFlight  = 64
	leastSilence = time.Second

	// steadyAfter is how long a node must have worked without a failure to be reported as working
	// again.
	steadyAfter = time.Second
)

// A node is one store of the quorum.
type node struct {
	store.Store
	name      string
	index     int
	quorum    *Store
	restarter Restarter // nil if the store does not implement it
	passer    Passer    // nil if the store does not implement it
	bounded   bool      // the store bounds its calls itself

	inFlight  atomic.Int32
	repeats   atomic.Int32 // calls of leaveLater
	silent    atomic.Int64 // since when a call has been unanswered, on the clock of the quorum
	lastReply atomic.Int64 // when it answered last
	failing   atomic.Bool  // its last call failed
	failedAt  atomic.Int64 // when a call failed last
	told      atomic.Bool  // the last report said that its grants do not count
	slow      atomic.Bool  // a call took longer than the hedge, and the node has not answered since
	excluded  atomic.Bool  // its grants do not count

	mu       sync.Mutex
	verified uint64        // value of Connections when the server was last identified
	known    bool          // verified, id and born are set
	id       string        // of the server
	born     time.Duration // when the server started, on the clock of the quorum
	twice    *node         // another node on the same server
	reported error         // the last error that was reported
}

var (
	errSkipped = errors.New("skipped: it does not answer")
	errTimeout = errors.New("no reply in time")
	errTainted = errors.New("a message that gives its vote back is unanswered")
	errRefused = errors.New("another request has its vote")
	errWithout = errors.New("it does not have the lock")
	errEarlier = errors.New("an earlier call for the same lock is unanswered")
	errOver    = errors.New("the lease is over")
)

// hung reports whether it is not worth waiting for calls to the node.
func (n *node) hung() bool {
	return n.inFlight.Load() >= maxInFlight &&
		n.quorum.now()-time.Duration(n.silent.Load()) > max(leastSilence, n.quorum.opts.Timeout)
}

// down reports whether calls to the node have failed for some time, and none has succeeded.
func (n *node) down() bool {
	return n.failing.Load() && n.quorum.now()-time.Duration(n.lastReply.Load()) > max(leastSilence, n.quorum.opts.Timeout)
}

// healthy reports whether the node answers as usual. While all nodes are healthy, only a majority
// is asked.
func (n *node) healthy() bool {
	return !n.failing.Load() && !n.slow.Load() && !n.excluded.Load()
}

// callContext returns the context of a call whose caller does not wait for it once ctx has ended.
// If the store bounds its calls itself, it is a context that cannot end: some client libraries are
// faster as long as they have not seen another one.
func (n *node) callContext(ctx context.Context) context.Context {
	if n.bounded {
		return context.Background()
	}
	return ctx
}

// call calls f with a context that ends at the deadline of the call, and records how the node is
// doing.
func (n *node) call(ctx context.Context, f func(ctx context.Context) error) error {
	if n.hung() {
		return errSkipped
	}
	if n.inFlight.Add(1) == 1 {
		n.silent.Store(int64(n.quorum.now())) // it was idle, not silent
	}
	defer n.inFlight.Add(-1)
	err := f(ctx)
	if err == errOver { // nothing was sent
		return err
	}
	if err != nil && ctx.Err() != nil {
		err = errTimeout
	}
	if err != nil && !isAnswer(err) {
		if ctx.Err() != context.Canceled { // else its caller went away
			n.fail(err)
		}
		return err
	}
	now := int64(n.quorum.now())
	n.silent.Store(now)
	n.lastReply.Store(now)
	if n.slow.Load() {
		n.slow.Store(false)
	}
	if n.failing.Load() {
		n.failing.Store(false)
	}
	if n.told.Load() {
		n.report(nil)
	}
	return err
}

// fail records that a call failed. A call that had no reply in time is not a failure of the node if
// the node has answered others meanwhile: it may have been sent shortly before its deadline.
func (n *node) fail(err error) {
	if err == errTimeout && n.quorum.now()-time.Duration(n.lastReply.Load()) < n.quorum.opts.Timeout/2 {
		return
	}
	if n.quorum.life.Closing.Err() == nil {
		n.failing.Store(true)
		n.failedAt.Store(int64(max(1, n.quorum.now())))
		n.report(err)
	}
}

// isAnswer reports whether an error is the node's answer, as opposed to a failure.
func isAnswer(err error) bool {
	return errors.Is(err, store.ErrNotHeld) || errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnsupported)
}

// report reports a change of the node's state. A node is reported as working again when no call
// has failed for some time. For example, a server whose memory is full refuses new locks, but
// still releases locks.
func (n *node) report(err error) {
	n.mu.Lock()
	if err == nil {
		err = n.exclusion()
		n.excluded.Store(err != nil)
		if failed := time.Duration(n.failedAt.Load()); err == nil && failed > 0 && n.quorum.now()-failed < steadyAfter {
			n.mu.Unlock()
			return
		}
	}
	changed := (err == nil) != (n.reported == nil)
	n.reported = err
	n.told.Store(err != nil)
	n.mu.Unlock()
	if changed {
		n.quorum.opts.Report(n.name, err)
	}
}

// counts returns nil if a grant that the node just gave counts, and otherwise the reason why it
// does not. It counts if the server has been up for the restart delay. A server that has
// restarted can only be reached by a new connection, so usually no call is needed.
func (n *node) counts(ctx context.Context) error {
	if n.restarter == nil {
		return nil
	}
	connections := n.restarter.Connections()
	n.mu.Lock()
	fresh, err := n.known && n.verified == connections, n.exclusion()
	n.mu.Unlock()
	if !fresh {
		server, err := n.verify(ctx, connections)
		if server.ID == "" && n.quorum.opts.RestartDelay < 0 {
			return nil // its uptime does not matter
		}
		return err
	}
	n.report(nil)
	return err
}

// verify identifies the server, and returns why its grants do not count.
func (n *node) verify(ctx context.Context, connections uint64) (Server, error) {
	server, err := n.restarter.Server(ctx)
	if err != nil {
		return server, fmt.Errorf("its uptime is unknown: %w", err)
	}
	s := n.quorum
	s.identify.Lock()
	twice := s.sameServer(n, server.ID)
	born := s.now() - server.Uptime
	n.mu.Lock()
	// A server may measure its uptime with a clock that jumps. It cannot have started before the
	// last reply of the previous server.
	switch {
	case n.known && server.ID == n.id:
		born = n.born
		if n.twice == nil {
			twice = nil // the other node came later, and does not count
		}
	case n.known:
		born = max(born, time.Duration(n.lastReply.Load()))
	}
	n.known, n.verified, n.id, n.twice, n.born = true, connections, server.ID, twice, born
	err = n.exclusion()
	n.mu.Unlock()
	s.updateTwice(n)
	s.identify.Unlock()
	n.report(nil)
	return server, err
}

var errTwice = errors.New("it is the same server")

// exclusion returns why the grants of the node do not count.
func (n *node) exclusion() error {
	if !n.known {
		return nil
	}
	if n.twice != nil {
		return fmt.Errorf("%w as node %s", errTwice, n.twice.name)
	}
	uptime, delay := n.quorum.now()-n.born, n.quorum.restartDelay()
	if !n.quorum.rules.counts(uptime, delay) {
		return fmt.Errorf("its server started %v ago and may have lost locks: it counts after %v", uptime.Round(time.Second), delay)
	}
	return nil
}

// sameServer returns another node on that server, or nil.
func (s *Store) sameServer(n *node, id string) *node {
	for _, other := range s.nodes {
		if other != n && id != "" && other.serverID() == id {
			return other
		}
	}
	return nil
}

// updateTwice looks for nodes on the same server again, for the nodes that had the server of n.
func (s *Store) updateTwice(n *node) {
	for _, other := range s.nodes {
		other.mu.Lock()
		had, id := other.twice == n, other.id
		other.mu.Unlock()
		if had {
			twice := s.sameServer(other, id)
			other.mu.Lock()
			other.twice = twice
			other.mu.Unlock()
		}
	}
}

// restartDelay returns how long the grants of a node do not count after a restart.
func (s *Store) restartDelay() time.Duration {
	switch fixed := s.opts.RestartDelay; {
	case fixed > 0:
		return ttlAtNodes(min(fixed, store.MaxTime)) // no TTL is longer
	case fixed < 0:
		return fixed
	}
	return ttlAtNodes(max(DefaultRestartDelay, s.maxTTL.load()))
}

// identifyNodes identifies the servers of all nodes, and returns an error if two nodes have the
// same server. A node that does not answer is identified later.
func (s *Store) identifyNodes(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, n := range s.nodes {
		if n.restarter == nil {
			continue
		}
		wg.Go(func() {
			call, cancel := context.WithTimeout(ctx, s.opts.Timeout)
			defer cancel()
			s.life.Add()
			_, err := await.Call(call, func() (_ struct{}, err error) {
				defer s.life.Leave()
				connections := n.restarter.Connections()
				return struct{}{}, n.call(n.callContext(call), func(ctx context.Context) error {
					server, err := n.verify(ctx, connections)
					if server.ID != "" {
						return nil // the node answered, even if it is young
					}
					return err
				})
			}, nil)
			if err == context.DeadlineExceeded && ctx.Err() == nil {
				n.fail(errTimeout)
			}
		})
	}
	wg.Wait()
	for i, n := range s.nodes {
		for _, other := range s.nodes[:i] {
			if id := n.serverID(); id != "" && id == other.serverID() {
				return fmt.Errorf("%w: quorum: %s and %s are the same server: every node must be a server of its own", store.ErrInvalid, other.name, n.name)
			}
		}
	}
	return ctx.Err()
}

// serverID returns the identity of the node's server, or "" if it is unknown.
func (n *node) serverID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id
}

// A NodesError reports that too few nodes confirmed a call. It has the reason for each of the
// other nodes.
type NodesError struct {
	Confirmed, Needed int
	Nodes             map[string]error // by the name of the node
	order             []string
}

func (e *NodesError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "quorum store: %d of %d nodes confirmed, %d are needed", e.Confirmed, e.Confirmed+len(e.order), e.Needed)
	for i, name := range e.order {
		sep := ": "
		if i > 0 {
			sep = "; "
		}
		fmt.Fprintf(&b, "%s%s: %v", sep, name, e.Nodes[name])
	}
	return b.String()
}

// Unwrap returns the errors of the nodes.
func (e *NodesError) Unwrap() []error {
	errs := make([]error, 0, len(e.order))
	for _, name := range e.order {
		// An error of the store contract from one node is not an answer of the quorum.
		if err := e.Nodes[name]; !isAnswer(err) && !errors.Is(err, store.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errs
}

// failures combines the errors of the nodes into one.
func (s *Store) failures(errs []error) error {
	if s.life.Closing.Err() != nil {
		return errClosed
	}
	e := &NodesError{Needed: s.majority, Nodes: make(map[string]error)}
	for i, n := range s.nodes {
		if errs[i] == nil {
			e.Confirmed++
			continue
		}
		e.Nodes[n.name] = errs[i]
		e.order = append(e.order, n.name)
	}
	return e
}

// A maximum holds the longest duration that was recorded.
type maximum struct{ v atomic.Int64 }

func (m *maximum) load() time.Duration { return time.Duration(m.v.Load()) }

func (m *maximum) note(d time.Duration) {
	for old := m.v.Load(); int64(d) > old; old = m.v.Load() {
		if m.v.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

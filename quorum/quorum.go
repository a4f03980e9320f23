package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	minNodes = 3
	maxNodes = 15 // more nodes make locks slower and not safer

	// DefaultTimeout bounds a call to one node. A healthy node answers much faster, and a node
	// that hangs delays only calls whose outcome depends on it.
	DefaultTimeout = 500 * time.Millisecond

	// DefaultRestartDelay, plus the drift that is allowed between clocks, is the shortest restart
	// delay. It is the default TTL of a client.
	DefaultRestartDelay = 30 * time.Second

	// closeWait is how long Close lets calls and clean-ups in flight finish.
	closeWait = 2 * time.Second
)

// A Node is one of the stores that vote.
type Node struct {
	Name  string // for people, in errors and reports; it must not contain a password
	Store store.Store
}

// Options change how a quorum works. The zero value means the defaults.
type Options struct {
	// Timeout bounds every call to a node, whatever the node's own store does; 0 means
	// DefaultTimeout. It must be far below the TTLs in use.
	Timeout time.Duration

	// RestartDelay, plus the drift that is allowed between clocks, is how long the grants of a node do not count,
	// at least, after its server restarted. If this client or another one uses a larger TTL, it is as long as that.
	// If it is set, this store refuses larger TTLs. 0 means DefaultRestartDelay, and no limit of the TTL. A
	// negative value turns the delay off: then a node that restarts without its data can break exclusion.
	RestartDelay time.Duration

	// Report, if set, is called with the reason when a node stops answering as it should, and
	// with nil when it answers again. It must not block. The default logs with slog.Default.
	Report func(node string, err error)
}

// A Joiner is a node store that works differently in a quorum: the stores for Redis count tokens for
// groups of names then. All clients must do so, because the tokens of a name come from one counter at
// each node. A store that wraps a Joiner must implement it, too.
type Joiner interface {
	// JoinQuorum is called by [New], before the store is used.
	JoinQuorum()
}

// A Restarter is a node store that knows when its server restarted. A store that does not
// implement it is assumed to have been up for long enough.
type Restarter interface {
	// Connections returns how many connections to the server were made so far, plus how often its clock
	// was seen to be set ahead. A server that restarted can be reached only by a new connection.
	Connections() uint64

	// Server returns what is known about the server.
	Server(ctx context.Context) (Server, error)
}

// A Server is what a [Restarter] knows about its server.
type Server struct {
	ID     string        // differs between servers, and changes when a server restarts
	Uptime time.Duration // since it started
	Clock  time.Time     // its time of day; zero if unknown
	Jumped time.Duration // since its clock was last seen to be set ahead; 0 if it never was
}

// A Store keeps locks on a majority of nodes. Make one with [New].
type Store struct {
	nodes    []*node
	majority int
	opts     Options
	caps     store.Capabilities
	base     time.Time
	life     handle.Life
	jobs     chan func() // for goroutines that are idle
	idle     atomic.Int32
	peers    peers

	servers    sync.Mutex    // protects the server of each node, and peers.misfit
	identified atomic.Int64  // how many servers were identified so far
	looked     int64         // its value before the nodes were last asked for the TTLs of other clients
	maxTTL     time.Duration // longest TTL that this client or another one uses

	mu       sync.Mutex
	sessions map[sessionKey]*session
	names    map[string]*name
	sweepAt  int           // number of sessions at which ended ones are removed
	sweepDue time.Duration // when to remove names that are not used
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Diagnoser = (*Store)(nil)
)

// New returns a store over nodes. The nodes belong to the store from then on, and Close closes them. They must not
// have been used before. It returns an error that matches [store.ErrInvalid], and closes nothing, if there are
// fewer than 3 nodes, more than 15, or one of them twice, if the restart delay is below the shortest TTL of the
// nodes, or if another client uses some of the nodes with a list that does not fit.
//
// Use an odd number of nodes. One more node makes every lock more expensive, but the quorum does
// not survive more failures.
func New(ctx context.Context, nodes []Node, opts Options) (*Store, error) {
	if len(nodes) < minNodes || len(nodes) > maxNodes {
		return nil, fmt.Errorf("%w: quorum of %d nodes: want from %d to %d, best an odd number: with 3 nodes one may fail, with 5 two", store.ErrInvalid, len(nodes), minNodes, maxNodes)
	}
	if opts.Timeout < 0 {
		return nil, fmt.Errorf("%w: quorum: timeout %v: want more than 0, or 0 for the default of %v", store.ErrInvalid, opts.Timeout, DefaultTimeout)
	}
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	if opts.Report == nil {
		opts.Report = logReport
	}
	s := &Store{opts: opts, majority: majority(len(nodes)), base: time.Now(), sessions: make(map[sessionKey]*session), names: make(map[string]*name)}
	// What clients tell each other must not depend on the order of the list.
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	for i, n := range nodes {
		for _, other := range nodes[:i] {
			if other.Store == n.Store || other.Name == n.Name {
				return nil, fmt.Errorf("%w: quorum: %s and %s are the same node: every node must be a server of its own", store.ErrInvalid, other.Name, n.Name)
			}
		}
		node := &node{Store: n.Store, name: n.Name, index: i, quorum: s}
		if node.restarter, _ = n.Store.(Restarter); node.restarter == nil || opts.RestartDelay < 0 {
			node.identify(n.Name) // without a restart delay, a node counts before its server is known
		}
		own := n.Store.Capabilities().Timeout
		node.bounded, node.slow = own > 0, min(opts.Timeout, cmp.Or(own, opts.Timeout))/2
		node.overdue = 2 * max(opts.Timeout, own)
		s.nodes = append(s.nodes, node)
	}
	s.jobs, s.peers.turn = make(chan func()), make(chan struct{}, 1)
	s.setCapabilities()
	if fixed := opts.RestartDelay; fixed > 0 && fixed < s.caps.MinTTL {
		return nil, fmt.Errorf("%w: quorum: restart delay %v: want at least the largest TTL in use; the shortest possible is %v", store.ErrInvalid, fixed, s.caps.MinTTL)
	}
	s.life.Begin("quorum store")
	err := s.identifyNodes(ctx)
	if err == nil {
		err = s.look(ctx)
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		s.life.Shut() // a call that is in flight reports nothing
		return nil, err
	}
	for _, n := range s.nodes {
		if joiner, ok := n.Store.(Joiner); ok {
			joiner.JoinQuorum()
		}
	}
	return s, nil
}

func logReport(node string, err error) {
	if err != nil {
		slog.Warn("holdfast quorum: node excluded", "node", node, "reason", err)
	} else {
		slog.Info("holdfast quorum: node counts again", "node", node)
	}
}

// setCapabilities derives the capabilities of the quorum from those of all nodes.
func (s *Store) setCapabilities() {
	all := ^store.Features(0)
	c := store.Capabilities{Store: "quorum", Timeout: s.opts.Timeout + 50*time.Millisecond, MaxTTL: store.MaxTime}
	for _, n := range s.nodes {
		nc := n.Capabilities()
		all &= nc.Features
		c.MinTTL = max(c.MinTTL, nc.MinTTL)
		c.Heartbeat = max(c.Heartbeat, nc.Heartbeat)
		c.MaxTTL = min(c.MaxTTL, cmp.Or(nc.MaxTTL, store.MaxTime))
	}
	c.MaxTTL = validity(c.MaxTTL)
	if fixed := s.opts.RestartDelay; fixed > 0 {
		c.MaxTTL = min(c.MaxTTL, fixed)
	}
	c.Features = all&(store.FeatureKeep|store.FeatureList|store.FeatureProcesses|store.FeatureHosts|store.FeatureDurable) |
		store.FeaturePush
	s.peers.off = !all.Has(store.FeatureShared|store.FeatureList) || !all.Has(store.FeatureProcesses) && !all.Has(store.FeatureHosts)
	blind := slices.ContainsFunc(s.nodes, func(n *node) bool { return n.restarter == nil })
	if s.opts.RestartDelay >= 0 && all.Has(store.FeatureHosts) && !blind {
		c.Features |= store.FeatureFailover
	}
	s.caps = c
}

// Capabilities returns what this store supports: the features that all nodes have, except for
// shared mode, permits and order of arrival.
func (s *Store) Capabilities() store.Capabilities { return s.caps }

// now is the time on the store's own monotonic clock.
func (s *Store) now() time.Duration { return time.Since(s.base) }

// Close waits for calls and clean-ups in flight, for at most 2 s, and closes the nodes; see [store.Store].
func (s *Store) Close() error {
	if !s.life.Shut() {
		return nil
	}
	timeout := time.AfterFunc(closeWait, s.life.End)
	defer timeout.Stop()
	s.life.Wait()
	s.life.End()
	errs := make([]error, len(s.nodes))
	var wg sync.WaitGroup
	for i, n := range s.nodes {
		wg.Go(func() { errs[i] = n.Store.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

package quorum

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// farAhead is how far the clock of a node may be ahead of those of most others when a client sees it
	// for the first time. A clock that is further ahead may have been set a moment ago.
	farAhead = time.Second

	// together is the time within which the clocks of a majority seem to jump if the clock of this host
	// stood still, for example while the host was suspended. Such clocks were not set.
	together = time.Second
)

// A server is what is known about the server of a node. Times are on the clock of the quorum, which is the
// monotonic clock of this host: see Store.now. Methods that need it and lock no mutex, such as exclusion and
// restartDelay, are called with Store.servers locked.
type server struct {
	id    string        // see Server
	born  time.Duration // when it started
	order int64         // a server that was identified later has a higher one; 0 if it was not identified yet

	// What is known about the clock of the node, whichever server it had.
	met    time.Duration // when it was identified for the first time
	ahead  time.Duration // how far its clock was ahead of the clock of the quorum then; 0 if unknown
	offset time.Duration // the same when it was last identified
	jumped time.Duration // when its clock was seen to be set ahead; 0 if it never was
}

// counts returns nil if a grant that the node just gave counts, and otherwise the reason why it does not: the rule
// Young. A server that has restarted can only be reached by a new connection, so usually no call is needed.
func (n *node) counts(ctx context.Context) error {
	s := n.quorum
	if err := n.verifyNew(ctx); err != nil {
		return err
	}
	s.servers.Lock()
	defer s.servers.Unlock()
	if n.exclusion() == nil && !s.hasLooked(n) {
		s.servers.Unlock()
		limited, cancel := context.WithTimeout(ctx, s.opts.Timeout/2) // the request still waits, and another node may hang
		defer cancel()
		err := s.tell(limited, 0, false) // others must know that this client uses the server
		if err == nil {
			err = s.look(limited) // others may have begun to use larger TTLs
		}
		s.servers.Lock()
		if !s.hasLooked(n) {
			return fmt.Errorf("the TTLs of other clients are unknown: %w", cmp.Or(err, errUnknown))
		}
	}
	return cmp.Or(n.exclusion(), s.peers.misfit) // the node may have made lists differ that fitted without it
}

// verifyNew identifies the server if a new connection was made. It returns an error if it is unknown, and its
// uptime matters.
func (n *node) verifyNew(ctx context.Context) error {
	if n.isVerified() {
		return nil
	}
	if err := n.verify(ctx); n.quorum.opts.RestartDelay >= 0 {
		return err
	}
	return nil
}

// isVerified reports whether no connection was made since the server was identified, if it can be.
func (n *node) isVerified() bool {
	return n.restarter == nil || n.verified.Load() == n.restarter.Connections()+1
}

// checkTwin returns an error if another node is the same server, and counts, or if the server is unknown.
func (n *node) checkTwin(ctx context.Context) error {
	if err := n.verifyNew(ctx); err != nil {
		return err
	}
	n.quorum.servers.Lock()
	defer n.quorum.servers.Unlock()
	if n.twin() != nil {
		return errTwin
	}
	return nil
}

// verify identifies the server. It returns an error if it is unknown.
func (n *node) verify(ctx context.Context) error {
	s, known := n.quorum, &n.server
	connections, begin := n.restarter.Connections(), s.now()
	found, err := n.restarter.Server(ctx)
	if err != nil {
		return fmt.Errorf("its uptime is unknown: %w", err)
	}
	s.servers.Lock()
	now := s.now()
	if known.order == 0 || found.ID != known.id {
		born := now - found.Uptime
		if known.order > 0 {
			// A server may measure its uptime with a clock that jumps. It cannot have started before the
			// last reply of the previous server.
			born = max(born, time.Duration(n.lastReply.Load()))
		}
		known.id, known.born, known.order = found.ID, born, s.identified.Add(1)
	}
	if !found.Clock.IsZero() {
		known.offset = time.Duration(found.Clock.UnixNano()) - (begin+now)/2
	}
	if known.met == 0 {
		known.met, known.ahead = max(1, now), known.offset
	}
	if found.Jumped > 0 {
		known.jumped = max(1, now-found.Jumped)
	}
	n.verified.Store(connections + 1)
	n.identify(cmp.Or(found.ID, n.name))
	s.servers.Unlock()
	n.report(nil)
	return nil
}

// exclusion returns why the grants of the node do not count.
func (n *node) exclusion() error {
	if n.server.order == 0 {
		return nil
	}
	if twin := n.twin(); twin != nil {
		return fmt.Errorf("it is the same server as node %s", twin.name)
	}
	uptime, delay := n.quorum.now()-n.server.born, n.quorum.restartDelay()
	at := n.setAhead()
	since, least := n.quorum.now()-at, max(delay, ttlAtNodes(n.quorum.maxTTL))
	if at > 0 && !isOld(since, least) {
		return fmt.Errorf("its clock seems to have been set ahead %v ago, which ends locks too early: excluded for another %v", since.Round(time.Second), (least - since).Round(time.Second))
	}
	if !isOld(uptime, delay) {
		return fmt.Errorf("its server restarted %v ago and may have lost locks: excluded for another %v", uptime.Round(time.Second), (delay - uptime).Round(time.Second))
	}
	return nil
}

// setAhead returns when the clock of the node may have been set ahead, or 0 if it was not. A server whose clock
// was set ahead ends grants too early.
func (n *node) setAhead() time.Duration {
	at, same := n.server.jumped, 0
	var ahead []time.Duration
	for _, other := range n.quorum.nodes {
		if other.server.jumped > 0 && (other.server.jumped-at).Abs() <= together {
			same++
		}
		if other.server.ahead != 0 {
			ahead = append(ahead, other.server.ahead)
		}
	}
	if same >= n.quorum.majority {
		at = 0
	}
	slices.Sort(ahead)
	if n.server.ahead != 0 && n.server.ahead-ahead[(len(ahead)-1)/2] > farAhead {
		at = max(at, n.server.met)
	}
	return at
}

// twin returns a node on the same server that was identified before, or nil. Only that one counts.
func (n *node) twin() *node {
	for _, other := range n.quorum.nodes {
		if n.server.id != "" && other.server.id == n.server.id && other.server.order < n.server.order {
			return other
		}
	}
	return nil
}

// restartDelay returns how long the grants of a node do not count after a restart.
func (s *Store) restartDelay() time.Duration {
	if s.opts.RestartDelay < 0 {
		return s.opts.RestartDelay
	}
	least := min(cmp.Or(s.opts.RestartDelay, DefaultRestartDelay), store.MaxTime) // no TTL is longer
	return ttlAtNodes(max(least, s.maxTTL))
}

// identifyNodes identifies the servers of all nodes, and returns an error if two nodes have the
// same server. A node that does not answer in time is identified later.
func (s *Store) identifyNodes(ctx context.Context) error {
	gatherAll(ctx, s, s.nodes, func(ctx context.Context, n *node) (struct{}, error) {
		if n.restarter == nil {
			return struct{}{}, nil
		}
		return struct{}{}, n.verify(ctx)
	})
	s.servers.Lock()
	defer s.servers.Unlock()
	for _, n := range s.nodes {
		if twin := n.twin(); twin != nil {
			return fmt.Errorf("%w: quorum: %s and %s are the same server: every node must be a server of its own", store.ErrInvalid, twin.name, n.name)
		}
	}
	return nil
}

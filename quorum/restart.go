package quorum

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A server is what is known about the server of a node.
type server struct {
	id    string        // see Server
	born  time.Duration // when it started, on the clock of the quorum
	order int           // a server that was identified later has a higher one; 0 if it was not identified yet
}

// counts returns nil if a grant that the node just gave counts, and otherwise the reason why it
// does not: the rule Young. A server that has restarted can only be reached by a new connection, so
// usually no call is needed.
func (n *node) counts(ctx context.Context) error {
	if n.restarter == nil {
		return nil
	}
	s := n.quorum
	if err := n.verifyNew(ctx); err != nil {
		return err
	}
	s.servers.Lock()
	defer s.servers.Unlock()
	if err := n.exclusion(); err != nil || s.hasLooked(n) {
		return cmp.Or(err, s.misfit())
	}
	s.servers.Unlock()
	limited, cancel := context.WithTimeout(ctx, s.opts.Timeout/2) // the request still waits, and another node may hang
	defer cancel()
	err := s.tell(limited, max(1, time.Duration(s.peers.told.Load()))) // others must know that this client uses the server
	if err == nil {
		err = s.look(limited) // others may have begun to use larger TTLs
	}
	s.servers.Lock()
	if !s.hasLooked(n) {
		return fmt.Errorf("the TTLs of other clients are unknown: %w", cmp.Or(err, errUnknown))
	}
	return cmp.Or(n.exclusion(), s.misfit()) // the node may have made lists differ that fitted without it
}

// verifyNew identifies the server if a new connection was made. It returns an error if it is unknown, and its
// uptime matters.
func (n *node) verifyNew(ctx context.Context) error {
	if n.isVerified() {
		return nil
	}
	server, err := n.verify(ctx)
	if server.ID != "" || n.quorum.opts.RestartDelay < 0 {
		return nil
	}
	return err
}

// isVerified reports whether no connection was made since the server was identified.
func (n *node) isVerified() bool { return n.verified.Load() == n.restarter.Connections()+1 }

// isTwin reports whether another node is the same server, and counts.
func (n *node) isTwin(ctx context.Context) bool {
	if n.restarter == nil || n.verifyNew(ctx) != nil {
		return false
	}
	n.quorum.servers.Lock()
	defer n.quorum.servers.Unlock()
	return n.twin() != nil
}

// verify identifies the server, and returns why its grants do not count.
func (n *node) verify(ctx context.Context) (Server, error) {
	connections, begin := n.restarter.Connections(), n.quorum.now()
	now, err := n.restarter.Server(ctx)
	if err != nil {
		return now, fmt.Errorf("its uptime is unknown: %w", err)
	}
	s := n.quorum
	s.servers.Lock()
	s.identified++
	found, old := server{now.ID, s.now() - now.Uptime, s.identified}, n.server
	switch {
	case old.order > 0 && now.ID == old.id:
		found.born, found.order = old.born, old.order
	case old.order > 0:
		// A server may measure its uptime with a clock that jumps. It cannot have started before the
		// last reply of the previous server.
		found.born = max(found.born, time.Duration(n.lastReply.Load()))
	}
	n.server = found
	n.clock.saw(now, begin, s.now())
	n.verified.Store(connections + 1)
	n.identify(cmp.Or(now.ID, n.name))
	s.servers.Unlock()
	n.report(nil)
	s.servers.Lock()
	defer s.servers.Unlock()
	return now, n.exclusion()
}

// exclusion returns why the grants of the node do not count. The caller holds the mutex of the servers.
func (n *node) exclusion() error {
	if n.server.order == 0 {
		return nil
	}
	if twin := n.twin(); twin != nil {
		return fmt.Errorf("it is the same server as node %s", twin.name)
	}
	uptime, delay := n.quorum.now()-n.server.born, n.quorum.restartDelay()
	if at := n.setAhead(); at > 0 {
		since, delay := n.quorum.now()-at, max(delay, ttlAtNodes(n.quorum.maxTTL))
		if !isOld(since, delay) {
			return fmt.Errorf("its clock seems to have been set ahead %v ago, which ends locks too early: excluded for another %v", since.Round(time.Second), (delay - since).Round(time.Second))
		}
	}
	if !isOld(uptime, delay) {
		return fmt.Errorf("its server restarted %v ago and may have lost locks: excluded for another %v", uptime.Round(time.Second), (delay - uptime).Round(time.Second))
	}
	return nil
}

// twin returns a node on the same server that was identified before, or nil. Only that one counts. The
// caller holds the mutex of the servers.
func (n *node) twin() *node {
	for _, other := range n.quorum.nodes {
		if n.server.id != "" && other.server.id == n.server.id && other.server.order < n.server.order {
			return other
		}
	}
	return nil
}

// noteTTL notes a TTL that is in use.
func (s *Store) noteTTL(ttl time.Duration) {
	s.servers.Lock()
	defer s.servers.Unlock()
	s.maxTTL = max(s.maxTTL, ttl)
}

// restartDelay returns how long the grants of a node do not count after a restart. The caller holds the
// mutex of the servers.
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
	gatherAll(ctx, s, s.nodes, func(ctx context.Context, n *node) (server Server, err error) {
		if n.restarter != nil {
			if server, err = n.verify(ctx); server.ID != "" {
				err = nil // the node answered, even if it is young
			}
		}
		return server, err
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	s.servers.Lock()
	defer s.servers.Unlock()
	for _, n := range s.nodes {
		if twin := n.twin(); twin != nil {
			return fmt.Errorf("%w: quorum: %s and %s are the same server: every node must be a server of its own", store.ErrInvalid, twin.name, n.name)
		}
	}
	return nil
}

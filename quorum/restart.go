package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A server is what is known about the server of a node. The zero value means that it was not
// identified yet.
type server struct {
	known    bool
	verified uint64        // value of Connections when it was last identified
	id       string        // see Server
	born     time.Duration // when it started, on the clock of the quorum
	twice    *node         // another node on the same server
}

var errTwice = errors.New("it is the same server")

// counts returns nil if a grant that the node just gave counts, and otherwise the reason why it
// does not: the rule Young. A server that has restarted can only be reached by a new connection, so
// usually no call is needed.
func (n *node) counts(ctx context.Context) error {
	if n.restarter == nil {
		return nil
	}
	connections := n.restarter.Connections()
	n.mu.Lock()
	fresh, err := n.server.known && n.server.verified == connections, n.exclusion()
	n.mu.Unlock()
	if !fresh {
		server, err := n.verify(ctx, connections)
		if server.ID == "" && n.quorum.opts.RestartDelay < 0 {
			return nil // its uptime does not matter
		}
		return err
	}
	return err
}

// verify identifies the server, and returns why its grants do not count.
func (n *node) verify(ctx context.Context, connections uint64) (Server, error) {
	now, err := n.restarter.Server(ctx)
	if err != nil {
		return now, fmt.Errorf("its uptime is unknown: %w", err)
	}
	s := n.quorum
	s.identify.Lock()
	twice := s.sameServer(n, now.ID)
	born := s.now() - now.Uptime
	n.mu.Lock()
	// A server may measure its uptime with a clock that jumps. It cannot have started before the
	// last reply of the previous server.
	switch old := &n.server; {
	case old.known && now.ID == old.id:
		born = old.born
		if old.twice == nil {
			twice = nil // the other node came later, and does not count
		}
	case old.known:
		born = max(born, time.Duration(n.lastReply.Load()))
	}
	n.server = server{true, connections, now.ID, born, twice}
	err = n.exclusion()
	n.mu.Unlock()
	s.updateTwice(n)
	s.identify.Unlock()
	n.report(nil)
	return now, err
}

// exclusion returns why the grants of the node do not count. The caller holds the mutex.
func (n *node) exclusion() error {
	if !n.server.known {
		return nil
	}
	if n.server.twice != nil {
		return fmt.Errorf("%w as node %s", errTwice, n.server.twice.name)
	}
	uptime, delay := n.quorum.now()-n.server.born, n.quorum.restartDelay()
	if !isOld(uptime, delay) {
		return fmt.Errorf("its server restarted %v ago and may have lost locks: excluded for another %v", uptime.Round(time.Second), (delay - uptime).Round(time.Second))
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
		had, id := other.server.twice == n, other.server.id
		other.mu.Unlock()
		if had {
			twice := s.sameServer(other, id)
			other.mu.Lock()
			other.server.twice = twice
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
// same server. A node that does not answer in time is identified later.
func (s *Store) identifyNodes(ctx context.Context) error {
	var nodes []*node
	for _, n := range s.nodes {
		if n.restarter != nil {
			nodes = append(nodes, n)
		}
	}
	gather(ctx, s, nodes, func(ctx context.Context, n *node) (Server, error) {
		server, err := n.verify(ctx, n.restarter.Connections())
		if server.ID != "" {
			err = nil // the node answered, even if it is young
		}
		return server, err
	}, func(int, Server, error) bool { return false }, nil)
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, n := range s.nodes {
		for _, other := range s.nodes[:i] {
			if id := n.serverID(); id != "" && id == other.serverID() {
				return fmt.Errorf("%w: quorum: %s and %s are the same server: every node must be a server of its own", store.ErrInvalid, other.name, n.name)
			}
		}
	}
	return nil
}

// serverID returns the identity of the node's server, or "" if it is unknown.
func (n *node) serverID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server.id
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

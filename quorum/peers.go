package quorum

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// peersName is the name under which clients tell each other, through the nodes, which nodes and which
	// TTLs they use. Each list of nodes, with each largest TTL, is a holder of it in shared mode.
	peersName = "holdfast:quorum:clients"

	// tellEvery is how often a client tells it while it is used.
	tellEvery = 30 * time.Second
)

// A peers is what a client has told the others, and what it knows about them. Two clients exclude each
// other only if each majority of one list of nodes has a node in common with each majority of the other
// list. And the restart delay of one must not be below the largest TTL of the other.
type peers struct {
	off    bool          // the nodes cannot keep it, or no other process uses them
	told   atomic.Int64  // largest TTL that was told
	next   atomic.Int64  // when to tell it again
	misfit error         // if another client has a list that does not fit; under Store.servers
	turn   chan struct{} // has a value while the nodes are told
	meta   string        // what was told last; used by the call that has the turn
}

// meetPeers is called before a TTL is used. It tells the nodes a TTL that is larger than what was told
// before. Now and then, it repeats what it told and looks at what others told, in the background. It
// returns an error if too few nodes were told, or if another client has a list of nodes that does not fit.
func (s *Store) meetPeers(ctx context.Context, ttl time.Duration) error {
	s.servers.Lock()
	s.maxTTL = max(s.maxTTL, ttl)
	s.servers.Unlock()
	p := &s.peers
	if p.off {
		return nil
	}
	now, next := int64(s.now()), p.next.Load()
	switch {
	case int64(ttl) > p.told.Load():
		if err := s.tell(ctx, ttl, false); err != nil {
			return err
		}
		p.next.Store(now) // a client that started at the same time may have told it since
	case now >= next && p.next.CompareAndSwap(next, now+int64(tellEvery)):
		s.life.Go(func(ctx context.Context) {
			s.look(ctx)
			if s.tell(ctx, 0, true) != nil {
				p.next.Store(int64(s.now())) // the next call tries again
			}
		})
	}
	s.servers.Lock()
	defer s.servers.Unlock()
	return p.misfit
}

// tell tells all nodes the list of the nodes and the largest TTL that this client uses, at least ttl. They
// remember it for as long as a lease with that TTL may live after the next time. It returns when a majority
// has been told, and an error if that takes too long. What was told before is only told again if asked to.
func (s *Store) tell(ctx context.Context, ttl time.Duration, again bool) error {
	errs, confirmed := slices.Repeat([]error{errTimeout}, len(s.nodes)), 0
	limited, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	select {
	case s.peers.turn <- struct{}{}:
		defer func() { <-s.peers.turn }()
	case <-limited.Done():
		return cmp.Or(ctx.Err(), s.failures(errs, confirmed))
	}
	ttl = max(ttl, time.Duration(s.peers.told.Load()))
	names, list := s.list()
	var servers []string
	for _, n := range s.nodes {
		if id := n.identity(); id != "" {
			servers = append(servers, id)
		}
	}
	meta := fmt.Sprintf("%s %d %d %s", list, len(s.nodes), ttl.Milliseconds(), strings.Join(servers, ","))
	if !again && meta == s.peers.meta { // told by another call meanwhile
		s.peers.told.Store(int64(ttl))
		return nil
	}
	sum := sha256.Sum256([]byte(meta))
	req := store.Request{
		Name: peersName, ID: store.ID(sum[:16]), Mode: store.Shared, Weight: 1, Tokens: 1,
		Owner: names, Meta: meta,
	}
	gather(limited, s, s.nodes, func(ctx context.Context, n *node) (store.Answer, error) {
		req := req
		req.TTL = min(tellEvery+ttlAtNodes(ttl), cmp.Or(n.Capabilities().MaxTTL, store.MaxTime))
		return n.Acquire(ctx, req)
	}, func(r reply[store.Answer]) bool {
		if errs[r.node] = r.err; r.err == nil && r.v.Granted() {
			confirmed++
		}
		return confirmed >= s.majority
	})
	if confirmed < s.majority {
		return cmp.Or(ctx.Err(), s.failures(errs, confirmed))
	}
	s.peers.told.Store(int64(ttl))
	s.peers.meta = meta
	return nil
}

// list returns the names of the nodes, for people, and a text that stands for them.
func (s *Store) list() (names, list string) {
	var all []string
	for _, n := range s.nodes {
		all = append(all, n.name)
	}
	names = strings.Join(all, ",")
	list = fmt.Sprintf("%x", sha256.Sum256([]byte(names)))[:16]
	return strings.ToValidUTF8(names[:min(len(names), store.MaxText)], ""), list
}

// hasLooked reports whether the TTLs of other clients were asked for after the server of a node was identified.
func (s *Store) hasLooked(n *node) bool { return s.peers.off || n.server.order <= s.looked }

// look reads what other clients told the nodes. It returns an error if a list does not fit.
func (s *Store) look(ctx context.Context) error {
	if s.peers.off {
		return nil
	}
	type other struct {
		names   string
		nodes   int
		at      uint16          // nodes that it told, as a set of bits
		servers map[string]bool // the identities that it knows
	}
	others := make(map[string]*other)
	_, own := s.list()
	identified := s.identified.Load()
	pages, errs := s.listAt(ctx, s.nodes, store.Query{Name: peersName})
	var unsure uint16 // nodes that have not answered, or may have forgotten it
	var misfit error
	s.servers.Lock()
	defer s.servers.Unlock()
	for i, n := range s.nodes {
		if errs[i] != nil || n.exclusion() != nil {
			unsure |= 1 << i
		}
		for _, lock := range pages[i].Locks {
			for _, h := range lock.Holders {
				var list, servers string
				var nodes, ttl int64
				if n, _ := fmt.Sscanf(h.Meta, "%s %d %d %s", &list, &nodes, &ttl, &servers); n < 3 { // it may know no server
					misfit = store.UnknownFormat(fmt.Sprintf("quorum: list of nodes of %q at %s", h.Owner, s.nodes[i].name))
					continue
				}
				s.maxTTL = max(s.maxTTL, min(time.Duration(ttl)*time.Millisecond, store.MaxTime))
				if others[list] == nil {
					others[list] = &other{names: h.Owner, nodes: int(nodes), servers: make(map[string]bool)}
				}
				others[list].at |= 1 << i
				for _, id := range strings.Fields(strings.ReplaceAll(servers, ",", " ")) {
					others[list].servers[id] = true
				}
			}
		}
	}
	if answers, _ := tally(errs); answers >= s.majority {
		s.looked = max(s.looked, identified)
	}
	delete(others, own)
	for _, o := range others {
		common, named := 0, false
		for i, n := range s.nodes {
			byName := slices.Contains(strings.Split(o.names, ","), n.name)
			named = named || byName
			// A client may have ended before it told all nodes, and may know them under other names.
			if byName || (o.at|unsure)&(1<<i) != 0 || o.servers[n.identity()] {
				common++
			}
		}
		if !named { // nodes that it has not reached yet may be any of these
			common += max(0, o.nodes-len(o.servers))
		}
		if !fits(len(s.nodes), o.nodes, min(common, len(s.nodes))) {
			misfit = fmt.Errorf("%w: quorum: another client uses some of these nodes, but its list is %s: two clients could hold the same lock; "+
				"configure the same list in all programs; to replace a node, add the new one in all programs, wait for the largest TTL and another minute, then remove the old one", store.ErrInvalid, o.names)
		}
	}
	if misfit != nil || unsure == 0 { // otherwise a list that did not fit may be in use still
		s.peers.misfit = misfit
	}
	return cmp.Or(misfit, ctx.Err())
}

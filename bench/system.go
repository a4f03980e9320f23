package main

import (
	"context"
	"fmt"
	"slices"
)

// A system is a kind of server, with the candidates that are compared on it.
type system struct {
	name  string // before the work in the report; empty for a single Redis server
	start func(b *bench) (addr string)
	peers []peer
	least float64 // what one goroutine should reach of the plain commands; many should reach 1

	// trip, if set, returns a call that is one round trip. On servers that write to several
	// replicas it is a write, because a release and a grant are writes.
	trip func(addr string) (call func(ctx context.Context) error, end func(), err error)
}

// systems are all systems, so that a child process finds its peer.
var systems = []*system{redisServer, redisQuorum, etcdServer, zooKeeper, sqliteFile, mariaDB, mariaDBWithoutFlushes, postgres}

// openPeer opens a client of a peer, for a child.
func openPeer(system, name, addr string) (*locker, error) {
	for _, s := range systems {
		for _, p := range s.peers {
			if s.name == system && p.name == name {
				return p.open(addr)
			}
		}
	}
	return nil, fmt.Errorf("no peer %s on %s", name, system)
}

// work returns the name of a workload in the report.
func (s *system) work(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	if s.name == "" {
		return text
	}
	return s.name + ", " + text
}

// us returns Holdfast.
func (s *system) us() peer {
	return s.peers[slices.IndexFunc(s.peers, func(p peer) bool { return p.name == us })]
}

// addr returns the address of a system, which is started when it is first used.
func (b *bench) addr(s *system) string {
	if b.addrs[s] == "" {
		b.addrs[s] = s.start(b)
	}
	return b.addrs[s]
}

// wanted returns the peers that the user selected.
func (b *bench) wanted(peers []peer) []peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p peer) bool {
		return b.who != nil && !slices.Contains(b.who, p.name)
	})
}

// waiting returns the selected peers that can wait for a held lock.
func (b *bench) waiting(s *system) []peer {
	return slices.DeleteFunc(b.wanted(s.peers), func(p peer) bool { return p.limit })
}

// A shape is a distribution of goroutines over clients.
type shape struct{ clients, goroutines int }

func (s shape) String() string { return fmt.Sprintf("%d×%d", s.clients, s.goroutines) }

// open opens the clients of a shape, and returns a locker for each goroutine. Each client has its
// own connection, like a separate process.
func (s shape) open(p peer, addr string) (lockers []*locker, end func(), err error) {
	var opened []*locker
	end = func() {
		for _, l := range slices.Backward(opened) {
			l.close()
		}
	}
	add := func(open func() (*locker, error)) (*locker, error) {
		l, err := open()
		if err != nil {
			end()
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		opened = append(opened, l)
		return l, nil
	}
	for range s.clients {
		l, err := add(func() (*locker, error) { return p.open(addr) })
		if err != nil {
			return nil, nil, err
		}
		lockers = append(lockers, l)
		for range s.goroutines - 1 {
			one := l
			if l.fork != nil {
				if one, err = add(l.fork); err != nil {
					return nil, nil, err
				}
			}
			lockers = append(lockers, one)
		}
	}
	return lockers, end, nil
}

// sharedStore measures a store that several processes use: own names, a hot name, and hand-offs.
func (b *bench) sharedStore(ctx context.Context, s *system) error {
	// Many goroutines come first, because they also warm up the server.
	for _, goroutines := range []int{b.goroutines, 1} {
		if err := b.ownNames(ctx, s, goroutines, s.target(goroutines), nil); err != nil {
			return err
		}
	}
	if err := b.oneName(ctx, s, shape{1, b.goroutines}, rushTargets{best: atLeast(50)}); err != nil {
		return err
	}
	for _, n := range b.clients {
		if err := b.oneName(ctx, s, shape{n, 1}, rushTargets{}); err != nil {
			return err
		}
	}
	return b.handOff(ctx, s)
}

// database measures a store in a database: own names, and hand-offs.
func (b *bench) database(ctx context.Context, s *system) error {
	for _, goroutines := range []int{1, b.goroutines} {
		if err := b.ownNames(ctx, s, goroutines, s.target(goroutines), nil); err != nil {
			return err
		}
	}
	return b.handOff(ctx, s)
}

// target returns which part of the rate of the plain commands goroutines should reach.
func (s *system) target(goroutines int) *target {
	if goroutines == 1 {
		return atLeast(s.least)
	}
	return atLeast(1)
}

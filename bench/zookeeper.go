package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	_ "github.com/holdfast-lock/holdfast/zkstore"
)

// zooPeers are the peers on ZooKeeper, the raw operations first.
var zooPeers = []peer{
	{name: raw, open: openRawZoo},
	{name: us, open: openZoo},
	{name: "zk.Lock", open: openZooLock},
}

// zooTakers are the peers that can wait, under the names that are passed to a child.
var zooTakers = []peer{
	{name: us + " on ZooKeeper", open: openZoo},
	{name: "zk.Lock", open: openZooLock},
}

var zooACL = zk.WorldACL(zk.PermAll)

func openZoo(addr string) (locker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	c, err := holdfast.Open(ctx, "zk://"+addr)
	if err != nil {
		return nil, err
	}
	return holdfastLocker{c}, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// dialZoo connects with the client library of the peers.
func dialZoo(addr string) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{addr}, 40*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	late := time.After(hangs)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn, nil
			}
		case <-late:
			conn.Close()
			return nil, errors.New("no session")
		}
	}
}

// rawZoo is the raw limit without a queue: no identity and no token.
type rawZoo struct{ conn *zk.Conn }

type rawZooHeld struct {
	conn *zk.Conn
	path string
}

func openRawZoo(addr string) (locker, error) {
	conn, err := dialZoo(addr)
	return rawZoo{conn}, err
}

func zooPath(kind, name string) string { return "/" + kind + "-" + strings.ReplaceAll(name, "/", "_") }

func (l rawZoo) Lock(_ context.Context, name string) (held, error) {
	h := rawZooHeld{l.conn, zooPath("raw", name)}
	_, err := l.conn.Create(h.path, nil, zk.FlagEphemeral, zooACL)
	return h, err
}

func (h rawZooHeld) Unlock(context.Context) error { return h.conn.Delete(h.path, -1) }

func (l rawZoo) Close() error {
	l.conn.Close()
	return nil
}

// bareZoo is the raw limit with a queue: it creates a sequence node in a parent, and removes
// both. It has no identity, no token and no record of the holder.
type bareZoo struct{ conn *zk.Conn }

type bareZooHeld struct {
	conn         *zk.Conn
	parent, node string
}

const bareQueue = "bare queue"

func openBareZoo(addr string) (locker, error) {
	conn, err := dialZoo(addr)
	return bareZoo{conn}, err
}

func (l bareZoo) Lock(_ context.Context, name string) (held, error) {
	parent := zooPath("bare", name)
	results, err := l.conn.Multi(
		&zk.CreateRequest{Path: parent, Acl: zooACL},
		&zk.CreateRequest{Path: parent + "/", Acl: zooACL, Flags: zk.FlagEphemeralSequential})
	if err != nil {
		return nil, err
	}
	return bareZooHeld{l.conn, parent, results[1].String}, nil
}

func (h bareZooHeld) Unlock(context.Context) error {
	_, err := h.conn.Multi(&zk.DeleteRequest{Path: h.node, Version: -1}, &zk.DeleteRequest{Path: h.parent, Version: -1})
	return err
}

func (l bareZoo) Close() error {
	l.conn.Close()
	return nil
}

// zooLock is the lock of the client library. It accepts no context, and leaves the parent nodes
// behind.
type zooLock struct{ conn *zk.Conn }

type zooLockHeld struct{ *zk.Lock }

func openZooLock(addr string) (locker, error) {
	conn, err := dialZoo(addr)
	return zooLock{conn}, err
}

func (l zooLock) Lock(_ context.Context, name string) (held, error) {
	lock := zk.NewLock(l.conn, zooPath("lock", name), zooACL)
	return zooLockHeld{lock}, lock.Lock()
}

func (h zooLockHeld) Unlock(context.Context) error { return h.Lock.Unlock() }

func (l zooLock) Close() error {
	l.conn.Close()
	return nil
}

// zookeeper measures P9 for ZooKeeper, and the counterpart of P3 to P5.
func (b *bench) zookeeper(ctx context.Context) error {
	// Use the optimizing compiler, and enough memory for it.
	server := servers.StartZooKeeper(b.t, servers.ZooKeeperOptions{Java: []string{"-XX:TieredStopAtLevel=4", "-Xmx512m"}})
	defer server.Kill()
	for _, goroutines := range []int{b.goroutines, 1} { // the first one also warms up the server
		if err := b.zooOwnNames(ctx, server.Addr(), goroutines); err != nil {
			return err
		}
	}
	if err := b.zooHotName(ctx, server.Addr()); err != nil {
		return err
	}
	for _, n := range b.clients {
		if err := b.zooSessions(ctx, server.Addr(), n); err != nil {
			return err
		}
	}
	if err := b.shapes(ctx, zooTakers[0], server.Addr(), 0); err != nil {
		return err
	}
	return b.zooHandOff(ctx, server.Addr())
}

// openAll opens peers; closeAll closes them.
func openAll(peers []peer, addr string) (lockers []locker, closeAll func(), err error) {
	closeAll = func() {
		for _, l := range lockers {
			l.Close()
		}
	}
	for _, p := range peers {
		l, err := p.open(addr)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("%s: %w", p.name, err)
		}
		lockers = append(lockers, l)
	}
	return lockers, closeAll, nil
}

func (b *bench) zooOwnNames(ctx context.Context, addr string, goroutines int) error {
	peers := b.wanted(zooPeers)
	candidates := append(b.wanted([]peer{{name: bareQueue, open: openBareZoo}}), peers...)
	lockers, closeAll, err := openAll(candidates, addr)
	if err != nil {
		return err
	}
	defer closeAll()
	var turns []turn[float64]
	for i, p := range candidates {
		turns = append(turns, turn[float64]{p.name, func() (float64, error) {
			return pairRate(lockers[i], fmt.Sprint("own", goroutines), goroutines, b.time)
		}, p.foreign()})
	}
	rates, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := "ZooKeeper, " + ownNamesOf(goroutines)
	b.compare(work, peers, rates, atLeast(0.9), nil)
	b.add(work, bareQueue, pairs, rates[bareQueue], nil)
	b.add(work, us+" / "+bareQueue, "×", ratios(rates[us], rates[bareQueue]), nil)
	return nil
}

func (b *bench) zooHotName(ctx context.Context, addr string) error {
	peers := b.wanted(zooPeers[1:])
	lockers, closeAll, err := openAll(peers, addr)
	if err != nil {
		return err
	}
	defer closeAll()
	var turns []turn[rush]
	for i, p := range peers {
		all := slices.Repeat([]locker{lockers[i]}, b.goroutines)
		turns = append(turns, turn[rush]{p.name, func() (rush, error) { return rushFor(all, "hot", b.time) }, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := fmt.Sprintf("ZooKeeper, %d goroutines, one name, one client", b.goroutines)
	b.compare(work, peers, ratesOf(found), nil, atLeast(50))
	b.waits(work, peers, found)
	return nil
}

// zooSessions measures many sessions on one name, like separate processes.
func (b *bench) zooSessions(ctx context.Context, addr string, n int) error {
	peers := b.wanted(zooPeers[1:])
	var turns []turn[rush]
	for _, p := range peers {
		lockers, closeAll, err := openAll(slices.Repeat([]peer{p}, n), addr)
		if err != nil {
			return err
		}
		defer closeAll()
		turns = append(turns, turn[rush]{p.name, func() (rush, error) { return rushFor(lockers, fmt.Sprint("rush", n), 2*b.time) }, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := fmt.Sprintf("ZooKeeper, %d sessions, one name", n)
	b.compare(work, peers, ratesOf(found), nil, nil)
	b.waits(work, peers, found)
	for _, p := range peers {
		b.add(work, p.name+": busiest / idlest", "×", column(found[p.name], rush.unfair), nil)
	}
	return nil
}

// zooHandOff measures a hand-off in round trips of a write. A hand-off needs two writes: the
// release and the grant.
func (b *bench) zooHandOff(ctx context.Context, addr string) error {
	conn, err := dialZoo(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Create("/trip", nil, zk.FlagEphemeral, zooACL); err != nil {
		return err
	}
	const read, write = "a read, after a pause", "a write, after a pause"
	turns := []turn[[]float64]{
		{read, func() ([]float64, error) {
			return timesOf(b.handoffs, true, func() error { _, _, err := conn.Exists("/trip"); return err })
		}, false},
		{write, func() ([]float64, error) {
			return timesOf(b.handoffs, true, func() error { _, err := conn.Set("/trip", nil, -1); return err })
		}, false},
	}
	takers := zooTakers
	if b.who != nil {
		takers = takers[:1]
	}
	for _, p := range takers {
		pass, err := newPasser(ctx, p, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer pass.close()
		turns = append(turns, turn[[]float64]{p.name, func() ([]float64, error) { return pass.times(ctx, b.handoffs) }, p.name != zooTakers[0].name})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	const work = "ZooKeeper, hand-off between processes"
	p99 := func(times []float64) float64 { return quantile(times, 0.99) }
	for _, t := range turns {
		b.add(work, t.name+": p50", "µs", column(found[t.name], median), nil)
		b.add(work, t.name+": p99", "µs", column(found[t.name], p99), nil)
	}
	ours, trip := found[zooTakers[0].name], column(found[write], median)
	b.add(work, us+": p50 / a write", "×", ratios(column(ours, median), trip), atMost(3))
	b.add(work, us+": p99 / a write", "×", ratios(column(ours, p99), trip), atMost(10))
	return nil
}

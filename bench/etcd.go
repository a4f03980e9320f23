package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-lock/holdfast"
	_ "github.com/holdfast-lock/holdfast/etcdstore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// onEtcd is the suffix of the names of peers that lock on etcd.
const onEtcd = " on etcd"

var (
	etcdUs   = peer{name: us + onEtcd, open: openHoldfastOnEtcd}
	etcdPeer = peer{name: "concurrency" + onEtcd, open: openConcurrency}
	etcdRaw  = peer{name: raw + onEtcd, open: openRawEtcd}

	etcdPeers = []peer{etcdRaw, etcdPeer, etcdUs}
)

func openHoldfastOnEtcd(addr string) (locker, error) {
	c, err := holdfast.Open(context.Background(), "etcd://"+addr)
	if err != nil {
		return nil, err
	}
	return holdfastLocker{c}, nil
}

// A concurrencyLocker is etcd's own package. A mutex belongs to a session, which is a lease with
// keep-alives.
type concurrencyLocker struct {
	client  *clientv3.Client // nil if this locker does not own it
	session *concurrency.Session
}

func dialEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
}

func openConcurrency(addr string) (locker, error) {
	client, err := dialEtcd(addr)
	if err != nil {
		return nil, err
	}
	session, err := newSession(client)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &concurrencyLocker{client, session}, nil
}

func newSession(client *clientv3.Client) (*concurrency.Session, error) {
	return concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
}

func (l *concurrencyLocker) Lock(ctx context.Context, name string) (held, error) {
	mutex := concurrency.NewMutex(l.session, "peer/"+name)
	return mutex, mutex.Lock(ctx)
}

func (l *concurrencyLocker) Close() error {
	err := l.session.Close()
	if l.client != nil {
		l.client.Close()
	}
	return err
}

// A rawEtcdLocker is the raw limit: a transaction that creates a key, and its deletion.
type rawEtcdLocker struct{ concurrencyLocker }

type rawEtcdHeld struct {
	client *clientv3.Client
	key    string
}

func openRawEtcd(addr string) (locker, error) {
	l, err := openConcurrency(addr)
	if err != nil {
		return nil, err
	}
	return &rawEtcdLocker{*l.(*concurrencyLocker)}, nil
}

func (l *rawEtcdLocker) Lock(ctx context.Context, name string) (held, error) {
	key := "raw/" + name
	resp, err := l.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "", clientv3.WithLease(l.session.Lease()))).Commit()
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("raw: %s is there", key)
	}
	return &rawEtcdHeld{l.client, key}, err
}

func (h *rawEtcdHeld) Unlock(ctx context.Context) error {
	_, err := h.client.Delete(ctx, h.key)
	return err
}

// startEtcd starts one server that does not wait for its disk. Waiting would slow down all
// candidates by the same amount.
func (b *bench) startEtcd() (addr string) {
	return servers.StartEtcd(b.t, servers.EtcdOptions{Args: []string{
		"--auto-compaction-mode=revision", "--auto-compaction-retention=10000", "--quota-backend-bytes=8000000000",
	}}).Addr()
}

// etcdShapes measures P4 for etcd: goroutines on one name, spread over clients in several ways.
func (b *bench) etcdShapes(ctx context.Context) error {
	return b.shapes(ctx, etcdUs, b.startEtcd(), 0.7)
}

// etcd measures P9 for etcd.
func (b *bench) etcd(ctx context.Context) error {
	addr := b.startEtcd()
	for _, work := range []func(context.Context, string) error{b.etcdOwnNames, b.etcdHotName, b.etcdSessions, b.etcdHandOff} {
		if err := work(ctx, addr); err != nil {
			return err
		}
	}
	return nil
}

// addEtcd adds a row for each candidate, and the ratios of Holdfast to the others.
func (b *bench) addEtcd(work string, rates map[string][]float64, againstRaw, againstPeer *target) {
	work = "etcd, " + work
	for _, p := range etcdPeers {
		b.add(work, strings.TrimSuffix(p.name, onEtcd), pairs, rates[p.name], nil)
	}
	b.add(work, us+" / "+raw, "×", ratios(rates[etcdUs.name], rates[etcdRaw.name]), againstRaw)
	b.add(work, us+" / concurrency", "×", ratios(rates[etcdUs.name], rates[etcdPeer.name]), againstPeer)
}

func (b *bench) etcdOwnNames(ctx context.Context, addr string) error {
	for _, goroutines := range []int{1, b.goroutines} {
		var turns []turn[float64]
		for _, p := range etcdPeers {
			l, err := p.open(addr)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			defer l.Close()
			turns = append(turns, turn[float64]{p.name, func() (float64, error) { return pairRate(l, "own", goroutines, b.time) }, p.name == etcdPeer.name})
		}
		rates, err := interleave(ctx, b, turns)
		if err != nil {
			return err
		}
		b.addEtcd(ownNamesOf(goroutines), rates, atLeast(0.9), nil)
	}
	return nil
}

// etcdHotName measures goroutines of one process that share a connection. With etcd's package
// each has its own session, because goroutines of one session do not exclude each other.
func (b *bench) etcdHotName(ctx context.Context, addr string) error {
	ours, err := etcdUs.open(addr)
	if err != nil {
		return err
	}
	defer ours.Close()
	client, err := dialEtcd(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	theirs := make([]locker, b.goroutines)
	for i := range theirs {
		session, err := newSession(client)
		if err != nil {
			return err
		}
		theirs[i] = &concurrencyLocker{session: session}
		defer theirs[i].Close()
	}
	return b.etcdRush(ctx, fmt.Sprintf("%d goroutines, one name, one client", b.goroutines),
		slices.Repeat([]locker{ours}, b.goroutines), theirs, atLeast(50))
}

// etcdSessions measures clients with a connection each, like separate processes.
func (b *bench) etcdSessions(ctx context.Context, addr string) error {
	n := slices.Max(b.clients)
	lockers := make(map[string][]locker)
	for _, p := range []peer{etcdUs, etcdPeer} {
		for range n {
			l, err := p.open(addr)
			if err != nil {
				return err
			}
			defer l.Close()
			lockers[p.name] = append(lockers[p.name], l)
		}
	}
	return b.etcdRush(ctx, fmt.Sprintf("%d clients, one name", n), lockers[etcdUs.name], lockers[etcdPeer.name], nil)
}

func (b *bench) etcdRush(ctx context.Context, work string, ours, theirs []locker, against *target) error {
	found, err := interleave(ctx, b, []turn[rush]{
		{etcdUs.name, func() (rush, error) { return rushFor(ours, "hot", 2*b.time) }, false},
		{etcdPeer.name, func() (rush, error) { return rushFor(theirs, "hot", 2*b.time) }, true},
	})
	if err != nil {
		return err
	}
	b.addEtcd(work, ratesOf(found), nil, against)
	b.waits("etcd, "+work, []peer{etcdUs, etcdPeer}, found)
	b.add("etcd, "+work, us+": busiest / idlest", "×", column(found[etcdUs.name], rush.unfair), nil)
	return nil
}

// etcdHandOff measures a hand-off in round trips of a write, because a release and a grant are
// writes.
func (b *bench) etcdHandOff(ctx context.Context, addr string) error {
	client, err := dialEtcd(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	const read, write = "round trip of a read", "round trip of a write"
	turns := []turn[[]float64]{
		{read, func() ([]float64, error) {
			return timesOf(b.handoffs, true, func() error { _, err := client.Get(ctx, "trip"); return err })
		}, false},
		{write, func() ([]float64, error) {
			return timesOf(b.handoffs, true, func() error { _, err := client.Put(ctx, "trip", ""); return err })
		}, false},
	}
	for _, p := range []peer{etcdUs, etcdPeer} {
		pass, err := newPasser(ctx, p, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer pass.close()
		turns = append(turns, turn[[]float64]{p.name, func() ([]float64, error) { return pass.times(ctx, b.handoffs) }, p.name == etcdPeer.name})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	const work = "etcd, hand-off between processes"
	p99 := func(times []float64) float64 { return quantile(times, 0.99) }
	trips := column(found[write], median)
	for _, t := range turns {
		b.add(work, strings.TrimSuffix(t.name, onEtcd)+": p50", "µs", column(found[t.name], median), nil)
	}
	b.add(work, write+": p99", "µs", column(found[write], p99), nil)
	b.add(work, us+": p99", "µs", column(found[etcdUs.name], p99), nil)
	b.add(work, us+": p50 / write", "×", ratios(column(found[etcdUs.name], median), trips), atMost(3))
	b.add(work, us+": p99 / write", "×", ratios(column(found[etcdUs.name], p99), trips), atMost(10))
	return nil
}

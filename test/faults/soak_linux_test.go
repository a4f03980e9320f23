package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

var soakFor = flag.Duration("soak", 20*time.Second, "how long to soak")

const (
	soakChildren = 6
	soakClients  = 8 // per child, with two goroutines each
	soakNames    = 12
	soakPermits  = 3
)

// A soak runs processes whose clients use locks of all modes, while processes are killed or cut
// off and servers fail.
type soak struct {
	t        *testing.T
	bed      *bed
	history  *History
	resource *servers.Redis
	urls     []string // one per child
	wires    []wires  // the proxies of each child; empty if there are none
	children []*child // the newest child at each index
	disturb  func()   // makes a server fail for a short time
	born     int

	mu       sync.Mutex
	accepted map[string]int64
	pending  map[string]int64 // writes with an unknown outcome
}

func TestSoakOfManyProcessesUnderAllFaultsAtOnce(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		s := newSoak(t, single(t, servers.RedisOptions{}))
		s.connect(s.bed.nodes[0].Addr())
		s.disturb = s.bed.nodes[0].Restart
		s.run()
	})
	// There are no proxies, because the servers of a Cluster tell clients each other's addresses.
	// A planned failover loses no lock.
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		s := newSoak(t, clusterVia(t, viaRueidis, servers.RedisOptions{}))
		s.connect()
		s.disturb = func() {
			node := s.bed.nodes[rand.IntN(len(s.bed.nodes))]
			if rand.IntN(2) == 0 {
				node.Do("CLIENT", "KILL", "TYPE", "normal")
			} else {
				node.Do("CLUSTER", "FAILOVER") // a primary refuses
			}
		}
		s.run()
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		s := newSoak(t, etcd(t))
		s.connect(s.bed.etcd.Addrs()...)
		s.disturb = func() { s.bed.etcd.Nodes[rand.IntN(3)].Restart() }
		s.run()
	})
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		// The servers remove the containers that killed processes leave behind.
		tidy := servers.ZooKeeperOptions{Java: []string{"-Dznode.container.checkIntervalMs=1000"}}
		s := newSoak(t, zooBed(t, servers.StartZooKeeperEnsemble(t, 3, tidy), zooSession))
		s.connect(s.bed.zoo.Addrs()...)
		s.disturb = func() { s.bed.zoo.Restart(s.bed.zoo.Nodes[rand.IntN(3)]) }
		s.run()
	})
}

func newSoak(t *testing.T, b *bed) *soak {
	return &soak{
		t: t, bed: b, history: new(History), resource: startShared(t),
		accepted: make(map[string]int64), pending: make(map[string]int64),
	}
}

// connect creates the proxies of each child.
func (s *soak) connect(addrs ...string) {
	for range soakChildren {
		url := s.bed.url
		var w wires
		for _, addr := range addrs {
			p := faultproxy.Start(s.t, addr)
			w, url = append(w, p), strings.Replace(url, addr, p.Addr(), 1)
		}
		s.urls, s.wires = append(s.urls, url), append(s.wires, w)
	}
}

func (s *soak) run() {
	t := s.t
	for i := range soakChildren {
		s.children = append(s.children, s.spawn(i))
	}
	kills, cuts, failures := 0, 0, 0
	for begin := time.Now(); time.Since(begin) < *soakFor; time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond) {
		i := rand.IntN(soakChildren)
		switch dice := rand.IntN(10); {
		case dice < 3 || dice < 9 && len(s.wires[i]) == 0:
			s.children[i].kill()
			s.children[i] = s.spawn(i)
			kills++
		case dice < 6:
			s.fault(i, wires.cut)
			cuts++
		case dice < 9:
			s.fault(i, wires.hold)
			cuts++
		default:
			s.disturb()
			failures++
		}
	}
	for _, w := range s.wires {
		w.heal()
	}
	before := s.total()
	eventually(t, "L: work goes on after the faults", func() error {
		if s.total() < before+soakNames {
			return errors.New("no updates")
		}
		return nil
	})
	for _, c := range s.children {
		c.finish()
	}
	t.Logf("%d kills, %d cuts, %d failures of servers; %d locks, %d updates", kills, cuts, failures, s.history.Len(), s.total())
	check(t, s.history.Check())
	check(t, checkShared(s.resource, s.accepted, s.pending))
	// On ZooKeeper, the record of a MinHold is removed by the next use of its name, or by a
	// listing.
	client := s.bed.open()
	for _, err := range client.List(t.Context(), "") {
		check(t, err)
	}
	s.bed.clean(limit, client)
}

func (s *soak) spawn(i int) *child {
	s.born++
	return spawn(s.t, s.history, order{
		Role: "soak", URLs: []string{s.urls[i]}, Resource: s.resource.Addr(),
		TTL: s.bed.short(), Clients: soakClients, Who: fmt.Sprint("p", s.born),
	}, s.wrote)
}

// fault makes the connections of a child fail for some time.
func (s *soak) fault(i int, fault func(wires)) {
	fault(s.wires[i])
	timer := time.AfterFunc(rand.N(2*s.bed.short()), s.wires[i].heal)
	s.t.Cleanup(func() { timer.Stop() })
}

// wrote counts updates of the resource.
func (s *soak) wrote(r report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !r.Done:
		s.pending[r.Writing]++
		return
	case r.Accepted:
		s.accepted[r.Writing]++
	}
	s.pending[r.Writing]--
}

func (s *soak) total() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, accepted := range s.accepted {
		n += accepted
	}
	return n
}

// soak is a role of a child. Its clients work until its input ends.
func (p *printer) soak(o order) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var all sync.WaitGroup
	failures := make(chan error, o.Clients)
	for i := range o.Clients {
		all.Go(func() { failures <- p.work(ctx, o, i) })
	}
	all.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// work is one client of a soak. Two goroutines share it, so that locks are handed over.
func (p *printer) work(ctx context.Context, o order, i int) error {
	client, err := o.open(i)
	for err != nil { // the server may be down
		if !pause(ctx, 100*time.Millisecond) {
			return nil
		}
		client, err = o.open(i)
	}
	defer client.Close()
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		all.Go(func() {
			resource, err := dialShared(o.Resource)
			for ctx.Err() == nil && err == nil {
				err = p.workOnce(ctx, o, client, resource)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// workOnce takes one lock in a random mode, with random options, and works under it.
func (p *printer) workOnce(ctx context.Context, o order, client *holdfast.Client, resource *shared) error {
	hold := Hold{Name: fmt.Sprint("n", rand.IntN(soakNames))}
	switch rand.IntN(8) {
	case 0:
		hold = Hold{Name: fmt.Sprint("r", rand.IntN(2)), Shared: rand.IntN(4) > 0}
	case 1:
		hold = Hold{Name: fmt.Sprint("s", rand.IntN(2)), Permits: 1 + rand.IntN(2), Limit: soakPermits}
	}
	ttl := o.TTL + time.Duration(rand.IntN(3))*o.TTL/2
	waitCtx, cancel := context.WithTimeout(ctx, 5*o.TTL)
	h, err := p.recorder().take(waitCtx, client, hold, ttl, soakOptions(ttl)...)
	cancel()
	if err != nil {
		pause(ctx, rand.N(50*time.Millisecond))
		return nil
	}
	if hold.exclusive() && hold.Name[0] == 'n' {
		if err := p.update(ctx, h, resource, hold.Name); err != nil && !errors.Is(err, fence.ErrStale) {
			return err
		}
	} else {
		pause(ctx, rand.N(20*time.Millisecond))
		h.believes()
	}
	h.unlock(ctx)
	pause(ctx, rand.N(100*time.Millisecond))
	return nil
}

// soakOptions returns random options of a call.
func soakOptions(ttl time.Duration) (opts []holdfast.CallOption) {
	switch rand.IntN(12) {
	case 0:
		opts = append(opts, holdfast.NoRenew())
	case 1:
		opts = append(opts, holdfast.MaxHold(ttl/2))
	case 2:
		opts = append(opts, holdfast.MinHold(50*time.Millisecond))
	case 3:
		opts = append(opts, holdfast.Meta("soak"))
	case 4:
		opts = append(opts, holdfast.Wait(rand.N(ttl)))
	case 5:
		opts = append(opts, holdfast.Retry(holdfast.MaxAttempts(3, holdfast.Backoff(10*time.Millisecond, time.Second))))
	}
	return opts
}

// update adds one to the resource, with a pause between the read and the write.
func (p *printer) update(ctx context.Context, h *held, resource *shared, name string) error {
	read, err := resource.read(name, h.Token())
	if err != nil {
		return err
	}
	h.believes()
	pause(ctx, rand.N(10*time.Millisecond))
	h.believes()
	p.print(report{Writing: name})
	err = resource.write(name, h.Token(), read)
	p.print(report{Writing: name, Done: err == nil || errors.Is(err, fence.ErrStale), Accepted: err == nil})
	return err
}

// pause sleeps, and reports whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

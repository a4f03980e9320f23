package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

var soakFor = flag.Duration("soak", time.Minute, "how long to soak")

const (
	soakChildren = 8
	soakClients  = 25 // of each child: 200 in all
	soakNames    = 20
)

// A soak is processes whose clients work under locks while they are killed, cut off and
// their server is restarted.
type soak struct {
	t        *testing.T
	bed      *bed
	history  *History
	resource *servers.Redis
	wires    wires    // one for each child
	children []*child // the last that was started in each place
	names    []string
	born     int

	mu       sync.Mutex
	accepted map[string]int64
	pending  map[string]int64 // writes whose outcome was not told
}

func TestSoakOfManyProcessesUnderAllFaultsAtOnce(t *testing.T) {
	s := &soak{
		t: t, bed: single(t, servers.RedisOptions{}), history: new(History), resource: startShared(t),
		accepted: make(map[string]int64), pending: make(map[string]int64),
	}
	for i := range soakNames {
		s.names = append(s.names, fmt.Sprint("n", i))
	}
	for i := range soakChildren {
		s.wires = append(s.wires, faultproxy.Start(t, s.bed.nodes[0].Addr()))
		s.children = append(s.children, s.spawn(i))
	}
	kills, cuts, restarts := 0, 0, 0
	for begin := time.Now(); time.Since(begin) < *soakFor; time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond) {
		i := rand.IntN(soakChildren)
		switch dice := rand.IntN(10); {
		case dice < 3:
			s.children[i].kill()
			s.children[i] = s.spawn(i)
			kills++
		case dice < 6:
			s.wires[i].Cut()
			s.healLater(i, 2*shortTTL)
			cuts++
		case dice < 9:
			s.wires[i].Hold()
			s.healLater(i, 2*shortTTL)
			cuts++
		default:
			s.bed.nodes[0].Restart()
			restarts++
		}
	}
	s.wires.heal()
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
	t.Logf("%d kills, %d cuts, %d restarts; %d locks, %d updates", kills, cuts, restarts, s.history.Len(), s.total())
	check(t, s.history.Check())
	check(t, checkShared(s.resource, s.accepted, s.pending))
	s.bed.clean(limit)
}

func (s *soak) spawn(i int) *child {
	s.born++
	return spawn(s.t, s.history, order{
		Role: "soak", URLs: []string{"redis://" + s.wires[i].Addr()}, Resource: s.resource.Addr(),
		Names: s.names, TTL: shortTTL, Clients: soakClients, Who: fmt.Sprint("p", s.born),
	}, s.wrote)
}

// healLater ends the faults of a proxy after some time.
func (s *soak) healLater(i int, most time.Duration) {
	timer := time.AfterFunc(rand.N(most), s.wires[i].Heal)
	s.t.Cleanup(func() { timer.Stop() })
}

// wrote counts updates at the resource.
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

// soak is the role of a child: its clients work until its input ends.
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

// work is one client of a soak.
func (p *printer) work(ctx context.Context, o order, i int) error {
	client, err := o.open(i)
	for err != nil { // the server may be away
		if !pause(ctx, 100*time.Millisecond) {
			return nil
		}
		client, err = o.open(i)
	}
	defer client.Close()
	resource, err := dialShared(o.Resource)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		name := o.Names[rand.IntN(len(o.Names))]
		waitCtx, cancel := context.WithTimeout(ctx, 5*shortTTL)
		h, err := p.recorder().lock(waitCtx, client, name, o.TTL)
		cancel()
		if err != nil {
			pause(ctx, rand.N(50*time.Millisecond))
			continue
		}
		if err := p.update(ctx, h, resource, name); err != nil && !errors.Is(err, fence.ErrStale) {
			return err
		}
		h.unlock(ctx)
		pause(ctx, rand.N(100*time.Millisecond))
	}
	return nil
}

// update adds one to the resource, slowly.
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

// pause reports whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

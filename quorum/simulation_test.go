//go:build !race

package quorum_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

var simSeed = flag.Uint64("sim.seed", 1, "first seed of the simulation")

var simSeeds = flag.Int("sim.seeds", 6, "how many runs of the simulation")

const (
	simTTL   = 2 * time.Second
	simDelay = 2100 * time.Millisecond // restart delay

	simHealthy = 15 * time.Second // faults begin then
	simHealed  = 75 * time.Second // the last fault begins before then
	simLasts   = simHealed + 15*time.Second + simHealthy
)

// A simServer is a server of a simulated network. It can hang, and restart without its data. Its
// counter of tokens follows its clock.
type simServer struct {
	offset time.Duration // of its clock
	begin  time.Time

	mu    sync.Mutex
	store *memstore.Store
	runs  int
	born  time.Time
	until time.Time // it hangs
}

// clock returns the token that its clock gives, in steps, so that servers usually agree.
func (s *simServer) clock() int64 {
	const step = 1 << 18
	return (1_000_000 + (time.Since(s.begin) + s.offset).Microseconds()) / step * step
}

func (s *simServer) state() (*memstore.Store, int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store, s.runs, s.until
}

func (s *simServer) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.Close()
	s.store, s.born = memstore.New(), time.Now()
	s.runs++
}

func (s *simServer) hang(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
}

// A simLink is the connection of one client to one server. Requests and replies are late or lost, and
// arrive in any order. A request may be served long after its caller has given up.
type simLink struct {
	gate
	server *simServer
	random func(n int) int
	bad    *atomic.Int32 // percentage of messages that are late or lost
	made   int           // connections; under the mutex of the server
}

func (l *simLink) delay() (d time.Duration, lost bool) {
	d = time.Duration(l.random(2000)) * time.Microsecond
	if l.random(100) < int(l.bad.Load()) {
		switch l.random(3) {
		case 0:
			return 0, true
		case 1:
			d += time.Duration(l.random(150)) * time.Millisecond
		default:
			d += time.Duration(l.random(3000)) * time.Millisecond
		}
	}
	return d, false
}

func (l *simLink) pass(ctx context.Context, _ string, do func(s store.Store) error) error {
	if l.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.timeout)
		defer cancel()
	}
	done := make(chan error, 1)
	l.server.mu.Lock()
	runs := l.server.runs
	l.made = runs + 1 // a server that restarted needs a new connection
	l.server.mu.Unlock()
	go func() {
		d, lost := l.delay()
		if lost {
			return
		}
		time.Sleep(d)
		_, _, until := l.server.state()
		time.Sleep(time.Until(until))
		s, now, _ := l.server.state()
		if now != runs {
			done <- errDown
			return
		}
		err := do(clocked{s, l.server})
		if d, lost = l.delay(); lost {
			return
		}
		time.Sleep(d)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A clocked is the store of a server whose tokens follow its clock.
type clocked struct {
	store.Store
	server *simServer
}

func (c clocked) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	req.Floor = max(req.Floor, c.server.clock())
	return c.Store.Acquire(ctx, req)
}

func (l *simLink) Wait(ctx context.Context, name string, id store.ID) error {
	s, _, _ := l.server.state()
	return s.Wait(ctx, name, id)
}

func (l *simLink) Connections() uint64 {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	return uint64(l.made)
}

func (l *simLink) Server(ctx context.Context) (quorum.Server, error) {
	return over(ctx, l.wire, "Server", func(context.Context, store.Store) (quorum.Server, error) {
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		return quorum.Server{ID: fmt.Sprintf("%p-%d", l.server, l.server.runs), Uptime: time.Since(l.server.born)}, nil
	})
}

// A simJudge knows which clients believe that they hold the name.
type simJudge struct {
	t *testing.T

	mu     sync.Mutex
	begin  time.Time
	holder string
	until  time.Time
	last   int64

	grants, before, after int // in all, and before and after the faults
}

// granted notes a grant. Again tells that the identity had the lease before, which may have been alive
// at the nodes for longer than for its client: then it has the same tokens.
func (j *simJudge) granted(who string, begin time.Time, a store.Answer, again bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if j.holder != "" && now.Before(j.until) {
		j.t.Errorf("G1: %s was granted while %s holds for another %v", who, j.holder, j.until.Sub(now))
	}
	if last := a.Token + int64(a.Tokens) - 1; !again || a.Token > j.last || last < j.last {
		j.token(who, a.Token, a.Tokens)
	}
	j.holder, j.until = who, begin.Add(a.TTL)
	j.grants++
	switch at := now.Sub(j.begin); {
	case at < simHealthy:
		j.before++
	case at >= simLasts-simHealthy:
		j.after++
	}
}

func (j *simJudge) token(who string, token int64, n int) {
	if token <= j.last {
		j.t.Errorf("G3: %s was granted token %d after %d", who, token, j.last)
	}
	j.last = max(j.last, token+int64(n)-1)
}

// renewed records a renewal, unless its reply arrived after the end of the lease. It reports whether the lease is
// held. Again tells that the request was repeated, so it may have the same tokens.
func (j *simJudge) renewed(who string, begin time.Time, out store.Renewed, again bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder != who || !time.Now().Before(j.until) {
		return false
	}
	switch out.Status {
	case store.Gone:
		j.holder = ""
		return false
	case store.Extended:
		j.until = begin.Add(out.TTL)
		if out.Tokens > 0 && (!again || out.Token > j.last) {
			j.token(who, out.Token, out.Tokens)
		}
	}
	return true
}

func (j *simJudge) released(who string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder == who {
		j.holder = ""
	}
}

func TestNoPromiseIsBrokenInASimulatedNetwork(t *testing.T) {
	for i := range *simSeeds {
		seed := *simSeed + uint64(i)
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
	}
}

func simulate(t *testing.T, seed uint64) {
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(seed, 1))
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return source.IntN(n)
	}
	n := 3 + random(3)
	brief := seed%2 == 0 // most leases are short
	begin := time.Now()
	time.Sleep(10 * time.Second) // all servers are old
	servers := make([]*simServer, n+1)
	for i := range servers {
		servers[i] = &simServer{store: memstore.New(), begin: begin, born: begin, offset: time.Duration(random(1000)) * time.Millisecond}
		if brief { // the nodes usually agree on tokens
			servers[i].offset /= 10
		}
	}
	var bad atomic.Int32
	judge := &simJudge{t: t, begin: time.Now()}
	var calm atomic.Bool // no client dies or is cancelled
	calm.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), simLasts)
	defer cancel()
	var all sync.WaitGroup
	for c := range 5 {
		var nodes []quorum.Node
		timeout := time.Duration(c/2) * 400 * time.Millisecond // some client libraries bound calls themselves
		added := c % 2                                         // some clients know of a node that was added
		if brief {
			added = c / 4
		}
		for i, s := range servers[:n+added] {
			link := &simLink{server: s, random: random, bad: &bad}
			link.Store, link.send, link.timeout, link.features = s.store, link.pass, timeout, store.FeatureHosts
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: link})
		}
		q := openQuorum(t, nodes, quorum.Options{Timeout: 200 * time.Millisecond, RestartDelay: simDelay})
		defer q.Close()
		for g := range 2 {
			all.Go(func() { simClient(ctx, q, judge, random, &calm, fmt.Sprint("client", c, "/", g), brief) })
		}
	}
	// At most a minority is faulty at a time, either while it hangs or from its restart until it counts again.
	all.Go(func() {
		time.Sleep(simHealthy)
		calm.Store(false)
		for time.Since(judge.begin) < simHealed {
			bad.Store(int32(random(4) * 3))
			if brief {
				bad.Store(int32(random(4)))
			}
			first := random(n)
			for i := range 1 + random(n-(n/2+1)) {
				s := servers[(first+i)%n]
				switch random(3) {
				case 0:
					s.restart()
				case 1:
					s.hang(time.Duration(random(4000)) * time.Millisecond)
				default:
					s.hang(time.Duration(random(1000)) * time.Millisecond)
					s.restart()
				}
			}
			time.Sleep(simDelay + 2*time.Second + time.Duration(random(3000))*time.Millisecond)
		}
		bad.Store(0)
		calm.Store(true)
	})
	all.Wait()
	// When the last fault has healed and what it left has expired, the name is granted as before.
	before, after := judge.before, judge.after
	t.Logf("seed %d: %d nodes, %d grants, %d before the faults, %d after them", seed, n, judge.grants, before, after)
	if after == 0 || brief && after < before/2 {
		t.Errorf("seed %d: %d grants in %v before the faults, and %d after them", seed, before, simHealthy, after)
	}
	time.Sleep(10 * time.Second) // late messages
}

func simClient(ctx context.Context, q *quorum.Store, judge *simJudge, random func(int) int, calm *atomic.Bool, name string, brief bool) {
	var req store.Request
	again := false // under the identity of a lease that was lost
	for lock := 0; ctx.Err() == nil; lock++ {
		who := fmt.Sprint(name, " lock ", lock)
		if !again {
			req = store.Request{
				Name: "n", ID: store.NewID(), Mode: store.Exclusive, Weight: 1, Tokens: 1 + random(2)*9, Queue: random(3) > 0 || brief && random(10) > 0,
				TTL: simTTL/2 + time.Duration(random(1000))*time.Millisecond,
			}
		}
		granted := simAcquire(ctx, q, judge, random, calm, who, req, again)
		held := granted
		rounds := random(6)
		if brief && (calm.Load() || random(60) > 0) { // a few long leases would make the rate random
			rounds = 0
			time.Sleep(time.Duration(random(3)*random(10)) * time.Millisecond)
		}
		for ; held && rounds > 0; rounds-- {
			time.Sleep(time.Duration(random(800)) * time.Millisecond)
			begin := time.Now()
			if random(4) == 0 {
				if a, err := q.Acquire(ctx, req); err == nil && a.Granted() {
					out := store.Renewed{Status: store.Extended, TTL: a.TTL, Token: a.Token, Tokens: a.Tokens}
					held = judge.renewed(who, begin, out, true)
				}
				continue
			}
			r := store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: store.Exclusive, Tokens: random(2) * 5}
			if out, err := q.Renew(ctx, []store.Renewal{r}); err == nil {
				held = judge.renewed(who, begin, out[0], false)
			}
		}
		judge.released(who)
		again = granted && !held && random(2) == 0
		switch {
		case again:
		case !calm.Load() && random(10) == 0 && (!brief || random(20) == 0): // it dies
		case held && random(4) == 0 && (!brief || random(20) == 0):
			keep := store.Keep{State: store.Cooling, For: time.Duration(1+random(1000)) * time.Millisecond}
			q.Release(context.Background(), req.Name, req.ID, keep)
		case held:
			var twice sync.WaitGroup
			if random(10) == 0 { // another goroutine ends it too
				twice.Go(func() {
					time.Sleep(time.Duration(random(4000)) * time.Microsecond)
					switch random(3) {
					case 0:
						q.Break(context.Background(), req.Name, req.ID)
					case 1:
						q.Leave(context.Background(), req.Name, req.ID)
					default:
						q.Release(context.Background(), req.Name, req.ID, store.Keep{})
					}
				})
			}
			q.Release(context.Background(), req.Name, req.ID, store.Keep{})
			twice.Wait()
		default:
			q.Leave(context.Background(), req.Name, req.ID)
		}
		if !brief {
			time.Sleep(time.Duration(random(100)) * time.Millisecond)
		}
	}
}

// simAcquire asks until the request is granted or a client has no patience any more. Some of its calls are cancelled.
func simAcquire(ctx context.Context, q *quorum.Store, judge *simJudge, random func(int) int, calm *atomic.Bool, who string, req store.Request, again bool) bool {
	patience := time.Now().Add(time.Duration(random(20)) * time.Second)
	for ctx.Err() == nil && time.Now().Before(patience) {
		begin := time.Now()
		limit := time.Hour
		if !calm.Load() && random(5) == 0 {
			limit = time.Duration(random(30)) * time.Millisecond
		}
		callCtx, cancel := context.WithTimeout(ctx, limit)
		a, err := q.Acquire(callCtx, req)
		cancel()
		switch {
		case err == nil && a.Granted():
			if time.Since(begin) < a.TTL {
				judge.granted(who, begin, a, again)
				return true
			}
		case err == nil && req.Queue:
			wait, cancel := context.WithTimeout(ctx, a.Refusal.Again)
			q.Wait(wait, req.Name, req.ID)
			cancel()
		case err != nil && random(4) == 0: // as a client that reports the failure to its caller
			return false
		default:
			time.Sleep(time.Duration(random(50)) * time.Millisecond)
		}
	}
	return false
}

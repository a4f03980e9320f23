package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A queue is one who holds a name and others who wait for it, each on a connection of its
// own.
type queue struct {
	*testing.T
	server *servers.Redis
	ctx    context.Context
	holder store.Request
	owner  *Store
}

func newQueue(t *testing.T) *queue {
	q := &queue{T: t, server: servers.StartRedis(t, servers.RedisOptions{InMemory: true})}
	var cancel context.CancelFunc
	q.ctx, cancel = context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	q.owner, q.holder = q.open(), q.request()
	if answer := q.ask(q.owner, q.holder); !answer.Granted() {
		t.Fatalf("refused: %+v", answer.Refusal)
	}
	return q
}

func (q *queue) open() *Store {
	s := openQuick(q, "redis://"+q.server.Addr())
	q.Cleanup(func() { s.Close() })
	return s
}

func (q *queue) request() store.Request {
	return store.Request{Name: "x", ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: time.Minute, Tokens: 1, Queue: true, Owner: "me"}
}

func (q *queue) ask(s *Store, req store.Request) store.Answer {
	q.Helper()
	answer, err := s.Acquire(q.ctx, req)
	if err != nil {
		q.Fatal(err)
	}
	return answer
}

// wait queues a request on a connection of its own, which listens when this returns.
func (q *queue) wait() (*Store, store.Request) {
	q.Helper()
	s, req := q.open(), q.request()
	q.refused(s, req)
	q.woken(s, req) // because it missed what was before it listened
	q.refused(s, req)
	return s, req
}

func (q *queue) refused(s *Store, req store.Request) {
	q.Helper()
	if answer := q.ask(s, req); answer.Granted() {
		q.Fatal("granted to two")
	}
}

func (q *queue) woken(s *Store, req store.Request) {
	q.Helper()
	if err := s.Wait(q.ctx, req.Name, req.ID); err != nil {
		q.Fatal(err)
	}
}

func (q *queue) release() {
	q.Helper()
	if err := q.owner.Release(q.ctx, q.holder.Name, q.holder.ID, store.Keep{}); err != nil {
		q.Fatal(err)
	}
}

func TestTheNextIsGrantedTheNameWithoutAskingAgain(t *testing.T) {
	q := newQueue(t)
	s, req := q.wait()
	later, laterReq := q.wait()
	holder := q.ask(q.owner, q.holder)
	q.server.Must("CONFIG", "RESETSTAT")
	q.release()
	q.woken(s, req)
	answer := q.ask(s, req)
	if got := calls(t, q.server)["evalsha"]; got != 1 {
		t.Errorf("%d scripts, want the one that released it", got)
	}
	if !answer.Granted() || answer.Token <= holder.Token || answer.Tokens != 1 || answer.Waiters != 1 {
		t.Errorf("%+v after token %d, want a grant of one token above it, and one waiter", answer, holder.Token)
	}
	if left := q.server.Must("LINDEX", "holdfast:lock:x", "0").(string); left[0] != 'S' {
		t.Errorf("the lock is %q", left)
	}
	q.refused(later, laterReq)
	if err := s.Release(q.ctx, req.Name, req.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	q.woken(later, laterReq)
	if answer := q.ask(later, laterReq); !answer.Granted() {
		t.Errorf("refused: %+v", answer.Refusal)
	}
}

func TestWhatIsGrantedUnaskedCountsFromTheLastRequest(t *testing.T) {
	q := newQueue(t)
	s, req := q.wait()
	asked := time.Now() // after the last request, hence a bound
	const pause = quick / 4
	time.Sleep(pause)
	q.release()
	q.woken(s, req)
	answer := q.ask(s, req)
	if most := quick - time.Since(asked); !answer.Granted() || answer.TTL > quick-pause {
		t.Errorf("%+v, want a grant for %v at most", answer, most)
	}
}

func TestAnOldGrantIsAskedForAgain(t *testing.T) {
	q := newQueue(t)
	s, req := q.wait()
	q.release()
	q.woken(s, req)
	time.Sleep(quick * 3 / 4)
	if answer := q.ask(s, req); !answer.Granted() || answer.TTL != req.TTL {
		t.Errorf("%+v, want a grant for %v", answer, req.TTL)
	}
}

func TestAGrantThatNobodyHearsOfIsNone(t *testing.T) {
	q := newQueue(t)
	s, _ := q.wait()
	s.Close() // without leaving the queue, as if its process had been killed
	q.release()
	if held := q.server.Must("LINDEX", "holdfast:lock:x", "0").(string); held[0] != 'C' {
		t.Errorf("the lock is %q, want nobody to hold it", held)
	}
	next, req := q.open(), q.request()
	begin := time.Now()
	for answer := q.ask(next, req); !answer.Granted(); answer = q.ask(next, req) {
		if time.Since(begin) > 2*quick {
			t.Fatal("a dead waiter keeps the next one out for longer than its heartbeat")
		}
		time.Sleep(answer.Refusal.Again)
	}
}

func TestAPlaceThatAnotherTakesOverIsGrantedToThatOne(t *testing.T) {
	q := newQueue(t)
	s, req := q.wait()
	q.release()
	q.woken(s, req)
	req.Meta = "another job"
	if answer := q.ask(s, req); !answer.Granted() {
		t.Fatalf("refused: %+v", answer.Refusal)
	}
	lock, err := s.List(q.ctx, store.Query{Name: req.Name})
	if err != nil {
		t.Fatal(err)
	}
	if holders := lock.Locks[0].Holders; len(holders) != 1 || holders[0].Meta != req.Meta {
		t.Errorf("holders %+v, want one for %q", holders, req.Meta)
	}
}

func TestALeaseThatIsNotRenewedLastsForItsTTL(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var clients [2]*holdfast.Client
	for i := range clients {
		clients[i] = holdfast.New(openQuick(t, "redis://"+server.Addr()))
		defer clients[i].Close()
	}
	held, err := clients[0].Lock(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	leases := make(chan *holdfast.Lease, 1)
	go func() {
		lease, err := clients[1].Lock(ctx, "x", holdfast.TTL(time.Minute), holdfast.NoRenew())
		if err != nil {
			t.Error(err)
		}
		leases <- lease
	}()
	for {
		if info, err := clients[0].Inspect(ctx, "x"); err != nil {
			t.Fatal(err)
		} else if len(info.Waiters) == 1 {
			break
		}
	}
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	lease := <-leases
	if lease == nil {
		t.FailNow()
	}
	defer lease.Unlock(ctx)
	if left := time.Until(lease.Deadline()); left < 50*time.Second {
		t.Errorf("it ends in %v, want about a minute", left)
	}
}

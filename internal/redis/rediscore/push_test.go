package rediscore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A queue is the holder of a name and its waiters, each on a connection of its own.
type queue struct {
	*testing.T
	server *servers.Redis
	ctx    context.Context
	holder store.Request
	owner  *Store
}

func newQueue(t *testing.T) *queue {
	q := &queue{T: t, server: servers.StartRedis(t, servers.RedisOptions{InMemory: true})}
	q.ctx, q.owner, q.holder = suites.Limited(t), q.open(), q.request()
	suites.Granted(t, q.owner, q.holder)
	return q
}

func (q *queue) open() *Store {
	return open(q, q.server.Addr())
}

func (q *queue) request() store.Request { return suites.Queued("x") }

func (q *queue) ask(s *Store, req store.Request) store.Answer {
	q.Helper()
	answer, err := s.Acquire(q.ctx, req)
	must(q, err)
	return answer
}

// wait queues a request on a connection of its own. The connection has subscribed when wait
// returns.
func (q *queue) wait() (*Store, store.Request) {
	q.Helper()
	s, req := q.open(), q.request()
	q.refused(s, req)
	q.woken(s, req) // all waiters are woken when their subscription starts
	q.refused(s, req)
	return s, req
}

func (q *queue) refused(s *Store, req store.Request) {
	q.Helper()
	suites.Refused(q, s, req)
}

func (q *queue) woken(s *Store, req store.Request) {
	q.Helper()
	must(q, s.Wait(q.ctx, req.Name, req.ID))
}

func (q *queue) release() {
	q.Helper()
	suites.Release(q, q.owner, q.holder)
}

func TestAReleasePushesAGrantToTheFirstWaiter(t *testing.T) {
	q := newQueue(t)
	s, req := q.wait()
	later, laterReq := q.wait()
	last := time.Now().Add(time.Minute).UnixMicro()
	q.server.Must("SET", "holdfast:token", strconv.FormatInt(last, 10))
	q.server.Must("CONFIG", "RESETSTAT")
	q.release()
	q.woken(s, req)
	answer := q.ask(s, req)
	if got := calls(t, q.server)["evalsha"]; got != 1 {
		t.Errorf("%d scripts, want only the release", got)
	}
	if !answer.Granted() || answer.Token != last+1 || answer.Tokens != 1 || answer.Waiters != 1 {
		t.Errorf("%+v, want a grant of one token, %d, and one waiter", answer, last+1)
	}
	if value := q.server.Must("LINDEX", "holdfast:lock:x", "0").(string); strings.Split(value, "\t")[8] != req.ID.String() {
		t.Errorf("the lock is %q, want %s to hold it", value, req.ID)
	}
	field := "w" + laterReq.ID.String()
	if left := q.server.Must("LRANGE", "holdfast:queue:x", "0", "-1").([]any); len(left) != 1 || left[0] != field {
		t.Errorf("queue %v, want %s only", left, field)
	}
	if left := q.server.Must("HKEYS", "holdfast:records:x").([]any); len(left) != 1 || left[0] != field {
		t.Errorf("records of %v, want of %s only", left, field)
	}
	for _, key := range []string{"lock", "queue", "records"} {
		if left := q.server.Must("PTTL", "holdfast:"+key+":x").(int64); left < 1 {
			t.Errorf("the key %s does not end by itself: %d", key, left)
		}
	}
	q.refused(later, laterReq)
	suites.Release(t, s, req)
	q.woken(later, laterReq)
	suites.Granted(t, later, laterReq)
}

// With a block of tokens the waiter's client can hand the name over among its goroutines.
func TestAPushedGrantHasAllTokensThatTheWaiterAskedFor(t *testing.T) {
	q := newQueue(t)
	for _, end := range []func(){
		q.release,
		func() { // runs the complete script
			must(t, q.owner.Break(q.ctx, q.holder.Name, q.holder.ID))
		},
	} {
		s, req := q.open(), q.request()
		req.Tokens = 16
		q.refused(s, req)
		q.woken(s, req)
		q.refused(s, req)
		q.server.Must("CONFIG", "RESETSTAT")
		end()
		q.woken(s, req)
		answer := q.ask(s, req)
		if scripts := calls(t, q.server)["evalsha"]; !answer.Granted() || answer.Tokens != 16 || scripts != 1 {
			t.Errorf("%+v after %d scripts, want 16 tokens after one script", answer, scripts)
		}
		q.owner, q.holder = s, req
	}
}

func TestWithReplicasNoGrantIsPushed(t *testing.T) {
	q := newQueue(t)
	s := openAs(t, q.server.Addr(), "", "", Config{Replicas: 1})
	req := q.request()
	if _, err := s.Acquire(q.ctx, req); !errors.As(err, new(*ReplicasError)) {
		t.Fatalf("error %v, want that no replica confirmed it", err)
	}
	record := q.server.Must("HGET", "holdfast:records:x", "w"+req.ID.String()).(string)
	if pushed := strings.Split(record, "\t")[7]; pushed != "0" {
		t.Errorf("the name may be pushed to the waiter for %s ms, without an answer of replicas", pushed)
	}
}

func TestAPushedGrantCountsFromTheLastRequest(t *testing.T) {
	q := newQueue(t)
	s, req := q.wait()
	asked := time.Now() // after the last request, so this is an upper bound
	const pause = heartbeat / 4
	time.Sleep(pause)
	q.release()
	q.woken(s, req)
	answer := q.ask(s, req)
	slow := time.Since(asked) >= heartbeat/2 // then it asks the server again, as the next test shows
	if !answer.Granted() || answer.TTL > heartbeat-pause && !slow {
		t.Errorf("%+v, want a grant for %v at most", answer, heartbeat-pause)
	}
}

func TestAPushedGrant(t *testing.T) {
	for name, test := range map[string]func(q *queue, s *Store, req store.Request){
		"that is old is renewed by asking again": func(q *queue, s *Store, req store.Request) {
			time.Sleep(heartbeat * 3 / 4)
			if answer := q.ask(s, req); !answer.Granted() || answer.TTL != req.TTL {
				q.Errorf("%+v, want a grant for %v", answer, req.TTL)
			}
		},
		"that has expired is not used": func(q *queue, s *Store, req store.Request) {
			next, nextReq := q.open(), q.request()
			for answer := q.ask(next, nextReq); !answer.Granted(); answer = q.ask(next, nextReq) {
				time.Sleep(answer.Refusal.Again)
			}
			q.refused(s, req) // the waiter received the grant, but asked too late
		},
		"that another request takes over has the meta of that request": func(q *queue, s *Store, req store.Request) {
			req.Meta = "another job"
			suites.Granted(q, s, req)
			lock, err := s.List(q.ctx, store.Query{Name: req.Name})
			must(q, err)
			if holders := lock.Locks[0].Holders; len(holders) != 1 || holders[0].Meta != req.Meta {
				q.Errorf("holders %+v, want one for %q", holders, req.Meta)
			}
		},
		"cannot change its mode": func(q *queue, s *Store, req store.Request) {
			req.Mode = store.Shared
			if answer, err := s.Acquire(q.ctx, req); !errors.Is(err, store.ErrInvalid) {
				q.Errorf("%+v, %v, want ErrInvalid", answer, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t)
			s, req := q.wait()
			q.release()
			q.woken(s, req)
			test(q, s, req)
		})
	}
}

// The client renews the grant at once if the lease can be renewed, and asks again otherwise.
func TestALeaseFromAPushedGrantHasItsFullTTL(t *testing.T) {
	for _, opts := range [][]holdfast.CallOption{{holdfast.TTL(time.Minute)}, {holdfast.TTL(time.Minute), holdfast.NoRenew()}} {
		q := newQueue(t)
		c := suites.Client(t, q.open())
		var released sync.WaitGroup
		released.Go(func() {
			suites.Eventually(t, "no waiter listens", func() bool { return len(q.server.Must("PUBSUB", "CHANNELS", "*").([]any)) == 1 })
			q.release()
		})
		lease, err := c.Lock(q.ctx, q.holder.Name, opts...)
		must(t, err)
		for begin := time.Now(); time.Until(lease.Deadline()) < 50*time.Second; time.Sleep(time.Millisecond) {
			if time.Since(begin) > heartbeat/4 { // far less than a third of the TTL of the pushed grant
				t.Fatalf("it ends in %v, want about a minute", time.Until(lease.Deadline()))
			}
		}
		released.Wait() // the waiter may have its grant before the reply to the release arrives
	}
}

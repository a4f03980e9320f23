package zkstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// Every waiter asks again from time to time. If each of them listed the queue, a thousand waiters
// would read sixty megabytes, and a few thousand would stop the server.
func TestManyWaitersDoNotListTheQueueAgainAndAgain(t *testing.T) {
	const waiters = 600
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	proxy := faultproxy.Start(t, server.Addr())
	s := openQuick(t, "zk://"+proxy.Addr())
	s.heartbeat = limit
	holder := request("a")
	try(t, s, holder)
	var queued []store.Request
	ask := func(req store.Request) store.Answer {
		answer, err := s.Acquire(within(t), req)
		if err != nil || answer.Granted() {
			t.Fatalf("granted %v, error %v", answer.Granted(), err)
		}
		return answer
	}
	for range waiters {
		req := request("a")
		req.Queue = true
		queued = append(queued, req)
		ask(req)
	}
	before := proxy.ToClient.Bytes()
	for i, req := range queued {
		if place := ask(req).Refusal.Place; place != i+1 {
			t.Errorf("place %d, want %d", place, i+1)
		}
	}
	const list, lists = waiters * 57, 200 // the size of a list, and how many lists may be read
	if read := proxy.ToClient.Bytes() - before; read > lists*list {
		t.Errorf("%d waiters read %d bytes to ask once, want %d at most", waiters, read, lists*list)
	}

	// All but the last leave at once. It must learn that it is the first.
	last := queued[waiters-1]
	var all sync.WaitGroup
	for _, req := range append(queued[:waiters-1:waiters-1], holder) {
		all.Go(func() {
			if err := s.Leave(within(t), req.Name, req.ID); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for answer := (store.Answer{Refusal: new(store.Refusal)}); !answer.Granted(); {
		if err := s.Wait(ctx, last.Name, last.ID); err != nil {
			t.Fatalf("not woken: %v", err)
		}
		answer = try(t, s, last)
	}
}

const farQueue = farBehind + 20

// The tests share one server, because starting one takes long.
func TestAWaiterFarBehind(t *testing.T) {
	s := openQuick(t, "zk://"+servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr())
	s.heartbeat = time.Hour // places must not end on a busy machine
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *Store, name string)
	}{
		{"learns that the name is closed as done", farDone},
		{"is granted together with many readers", farReader},
		{"is granted when one of many permits is free", farPermits},
		{"is granted at its first node", farTwice},
		{"is next though a holder leaves while it reads", farStale},
		{"is not woken with the next one", farQuiet},
		{"is granted at its first node after three late joins", farLate},
		{"joins a huge queue without listing it", farHuge},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s, test.name) })
	}
}

// asking returns a request that waits.
func asking(name string, mode store.Mode, limit int) store.Request {
	req := request(name)
	req.Mode, req.Limit, req.Queue = mode, limit, true
	return req
}

// ask makes n requests and returns them.
func ask(t *testing.T, s *Store, n int, name string, mode store.Mode, limit int) (all []store.Request) {
	t.Helper()
	for range n {
		all = append(all, asking(name, mode, limit))
		try(t, s, all[len(all)-1])
	}
	return all
}

// joinUnlisted joins a queue as a call does that ends before the queue is listed.
func joinUnlisted(t *testing.T, s *Store, req store.Request) {
	t.Helper()
	parent, _ := s.place(req.Name)
	stat := &wire.Call{Op: wire.Exists(parent, false)}
	if err := s.wire.Do(within(t), stat, s.join(parent, &req, stat)); err != nil {
		t.Fatal(err)
	}
}

func farDone(t *testing.T, s *Store, name string) {
	all := ask(t, s, farQueue, name, store.Exclusive, 0)
	if err := s.Release(within(t), name, all[0].ID, store.Keep{State: store.Done, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	last := all[farQueue-1]
	if err := s.Wait(within(t), name, last.ID); err != nil {
		t.Fatal(err)
	}
	if r := try(t, s, last).Refusal; len(r.Holders) == 0 || r.Holders[0].State != store.Done {
		t.Errorf("%+v, want the record that the name is done", r)
	}
}

func farReader(t *testing.T, s *Store, name string) {
	ask(t, s, farQueue, name, store.Shared, 0)
	req := asking(name, store.Shared, 0)
	joinUnlisted(t, s, req)
	if answer := try(t, s, req); !answer.Granted() {
		t.Errorf("%+v, want a grant", answer.Refusal)
	}
}

func farPermits(t *testing.T, s *Store, name string) {
	all := ask(t, s, farQueue+1, name, store.Permits, farQueue)
	if err := s.Release(within(t), name, all[0].ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	if answer := try(t, s, all[farQueue]); !answer.Granted() {
		t.Errorf("%+v, want a grant", answer.Refusal)
	}
}

// A call joined, and its reply was lost. The next call of the same identity joined far behind, and its
// list was lost.
func farTwice(t *testing.T, s *Store, name string) {
	holder, req := ask(t, s, 1, name, store.Exclusive, 0)[0], asking(name, store.Exclusive, 0)
	joinUnlisted(t, s, req)
	s.mu.Lock()
	c := s.claims[wake.Key{Name: name, ID: req.ID}]
	s.forgetLocked(c)
	_ = s.suspect(c, wire.ErrUnknown)
	s.mu.Unlock()
	ask(t, s, farQueue, name, store.Exclusive, 0)
	joinUnlisted(t, s, req)
	if err := s.Release(within(t), name, holder.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	if answer := try(t, s, req); !answer.Granted() {
		t.Errorf("%+v, want a grant", answer.Refusal)
	}
}

func farHuge(t *testing.T, s *Store, name string) {
	holder := ask(t, s, 1, name, store.Exclusive, 0)[0]
	var joins []*wire.Call
	parent, _ := s.place(name)
	for range hugeQueue {
		req := asking(name, store.Exclusive, 0)
		joins = append(joins, s.join(parent, &req, nil))
	}
	if err := s.wire.Do(within(t), joins...); err != nil {
		t.Fatal(err)
	}
	req := asking(name, store.Exclusive, 0)
	if r := try(t, s, req).Refusal; r.Place != hugeQueue+1 || len(r.Holders) > 0 {
		t.Errorf("%+v, want place %d, and no holder, because the queue was not listed", r, hugeQueue+1)
	}
	for _, join := range joins {
		s.wire.Send(&wire.Call{Op: wire.Delete(join.Path, wire.AnyVersion)})
	}
	if err := s.Release(within(t), name, holder.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	if answer := try(t, s, req); !answer.Granted() {
		t.Errorf("%+v, want a grant", answer.Refusal)
	}
}

// Calls joined, and their contexts ended before the replies arrived.
func farLate(t *testing.T, s *Store, name string) {
	holder, req := ask(t, s, 1, name, store.Exclusive, 0)[0], asking(name, store.Exclusive, 0)
	joinUnlisted(t, s, req)
	joinUnlisted(t, s, req)
	ask(t, s, farQueue, name, store.Exclusive, 0)
	joinUnlisted(t, s, req)
	if err := s.Release(within(t), name, holder.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	if answer := try(t, s, req); !answer.Granted() || answer.Waiters != farQueue {
		t.Errorf("%+v, want a grant and %d waiters", answer, farQueue)
	}
	parent, _ := s.place(name)
	if q, err := s.look(within(t), parent); err != nil || len(q.nodes) != farQueue+1 {
		t.Errorf("%d nodes, %v, want %d", len(q.nodes), err, farQueue+1)
	}
}

// The next waiter for permits watches the parent, and is woken when another one joins.
func farQuiet(t *testing.T, s *Store, name string) {
	all := ask(t, s, 3, name, store.Permits, 1)
	if err := s.Wait(within(t), name, all[1].ID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Wait(ctx, name, all[2].ID); err != context.DeadlineExceeded {
		t.Errorf("Wait: %v, want no wake-up", err)
	}
}

func farStale(t *testing.T, s *Store, name string) {
	const holders = store.MaxHolders + 4
	all := ask(t, s, holders+1, name, store.Permits, holders)
	parent, _ := s.place(name)
	q, err := s.look(within(t), parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []int{0, holders - 2} {
		if err := s.Release(within(t), name, all[left].ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		if answer, err := s.refuse(within(t), q, holders, &all[holders]); err != nil || answer.Refusal.Place != 1 {
			t.Errorf("%+v, %v, want place 1", answer.Refusal, err)
		}
	}
}

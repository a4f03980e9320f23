package zkstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// The tests share one server, because starting one takes long.
func TestWaitersOfOneName(t *testing.T) {
	s := openQuick(t, "zk://"+servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr())
	s.heartbeat = time.Hour // places must not end on a busy machine
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *Store, name string)
	}{
		{"a request is refused if too many wait", tooMany},
		{"a waiter is next though a holder leaves while it reads", stale},
		{"a waiter is not woken with the next one", quiet},
		{"a waiter is granted at its first node after three late joins", late},
		{"a waiter does not wait at the node of an attempt that does not", tried},
		{"an attempt that joined between readers or permits is not granted beside them", triedBetween},
		{"a request whose grant was broken is granted again", broken},
		{"the last waiter stays though a holder leaves while it reads", lastPlace},
		{"a dead request with another limit does not remove valid requests", invalidDead},
		{"a holder behind an attempt that was not granted is found", besideAttempt},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s, test.name) })
	}
}

// asking returns a request that waits.
func asking(name string, mode store.Mode, limit int) store.Request {
	req := suites.Queued(name)
	req.Mode, req.Limit = mode, limit
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

// join joins a queue n times, as calls do that end before the queue is listed, and returns the nodes.
func join(t *testing.T, s *Store, n int, request func() store.Request) (nodes []string) {
	t.Helper()
	var joins []*wire.Call
	for range n {
		req := request()
		parent, _ := s.place(req.Name)
		joins = append(joins, s.join(parent, &req))
	}
	must(t, s.wire.Do(within(t), joins...))
	for _, call := range joins {
		nodes = append(nodes, call.Path)
	}
	return nodes
}

// Each request that joins lists the whole queue.
func tooMany(t *testing.T, s *Store, name string) {
	request := func() store.Request { return asking(name, store.Exclusive, 0) }
	first := ask(t, s, 2, name, store.Exclusive, 0)[1]
	nodes := join(t, s, wake.MaxQueue-1, request)
	_, err := s.Acquire(within(t), request())
	if err == nil || errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "most that can wait") {
		t.Errorf("error %v, want one that says that too many wait", err)
	}
	if place := try(t, s, first).Refusal.Place; place != 1 { // those who wait already are not affected
		t.Errorf("place %d, want 1", place)
	}
	must(t, s.wire.Do(within(t), &wire.Call{Op: wire.Delete(nodes[0], wire.AnyVersion)}))
	if place := try(t, s, request()).Refusal.Place; place != wake.MaxQueue {
		t.Errorf("place %d, want %d, because nothing is left of the refused request", place, wake.MaxQueue)
	}
}

// Calls joined, and their contexts ended before the replies arrived.
func late(t *testing.T, s *Store, name string) {
	holder, req := ask(t, s, 1, name, store.Exclusive, 0)[0], asking(name, store.Exclusive, 0)
	again := func() store.Request { return req }
	join(t, s, 2, again)
	ask(t, s, 3, name, store.Exclusive, 0)
	join(t, s, 1, again)
	suites.Release(t, s, holder)
	if answer := try(t, s, req); !answer.Granted() || answer.Waiters != 3 {
		t.Errorf("%+v, want a grant and 3 waiters", answer)
	}
	parent, _ := s.place(name)
	if q, err := s.look(within(t), parent); err != nil || len(q.nodes) != 4 {
		t.Errorf("%d nodes, %v, want 4", len(q.nodes), err)
	}
}

// The next waiter for permits watches the parent, and is woken when another one joins.
func quiet(t *testing.T, s *Store, name string) {
	all := ask(t, s, 3, name, store.Permits, 1)
	must(t, s.Wait(within(t), name, all[1].ID))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Wait(ctx, name, all[2].ID); err != context.DeadlineExceeded {
		t.Errorf("Wait: %v, want no wake-up", err)
	}
}

func stale(t *testing.T, s *Store, name string) {
	const holders = store.MaxHolders + 4
	all := ask(t, s, holders+1, name, store.Permits, holders)
	parent, _ := s.place(name)
	q, err := s.look(within(t), parent)
	must(t, err)
	for _, left := range []int{0, holders - 2} {
		suites.Release(t, s, all[left])
		if answer, err := s.refuse(within(t), q, holders, &all[holders]); err != nil || answer.Refusal.Place != 1 {
			t.Errorf("%+v, %v, want place 1", answer.Refusal, err)
		}
	}
}

// The context of an attempt ended before its reply arrived. The next one waits.
func tried(t *testing.T, s *Store, name string) {
	ask(t, s, 1, name, store.Shared, 0)
	req := asking(name, store.Exclusive, 0)
	join(t, s, 1, func() store.Request { once := req; once.Queue = false; return once })
	if answer := try(t, s, req); answer.Granted() {
		t.Fatal("granted beside a reader")
	}
	if answer := try(t, s, asking(name, store.Shared, 0)); answer.Granted() || answer.Refusal.Waiters != 1 {
		t.Errorf("%+v, want a place behind the writer", answer)
	}
}

// Exclusive attempts do not join, but readers do not rely on that.
func triedBetween(t *testing.T, s *Store, name string) {
	for mode, limit := range map[store.Mode]int{store.Shared: 0, store.Permits: 3} {
		one := name + mode.String()
		first, once := ask(t, s, 1, one, mode, limit)[0], request(one)
		join(t, s, 1, func() store.Request { return once })
		second := asking(one, mode, limit)
		beside := try(t, s, second)
		suites.Release(t, s, first)
		answer := try(t, s, once)
		if beside.Granted() {
			t.Errorf("%s: granted behind an exclusive attempt, which is granted then: %v", mode, answer.Granted())
			continue
		}
		suites.Release(t, s, once)
		if err := s.Wait(within(t), one, second.ID); err != nil || !try(t, s, second).Granted() {
			t.Errorf("%s: %v, want a grant after the attempt", mode, err)
		}
	}
}

func broken(t *testing.T, s *Store, name string) {
	req := request(name)
	first := try(t, s, req)
	parent, _ := s.place(name)
	node := parent + "/" + requestNode(&req) + firstSeq
	if err := s.wire.Do(within(t), &wire.Call{Op: wire.Multi(wire.Delete(node, wire.AnyVersion), wire.Delete(parent, wire.AnyVersion))}); err != nil {
		t.Fatal(err)
	}
	if answer, err := s.Acquire(within(t), req); err != nil || answer.Token <= first.Token {
		t.Errorf("%+v, %v, want a token above %d", answer, err, first.Token)
	}
}

func lastPlace(t *testing.T, s *Store, name string) {
	const holders = store.MaxHolders + 4
	all := ask(t, s, holders, name, store.Permits, holders)
	join(t, s, wake.MaxQueue-1, func() store.Request { return asking(name, store.Permits, holders) })
	last := ask(t, s, 1, name, store.Permits, holders)[0]
	parent, _ := s.place(name)
	q, err := s.look(within(t), parent)
	must(t, err)
	suites.Release(t, s, all[holders-1])
	c, i := s.claimOf(wake.Key{Name: name, ID: last.ID}), q.find(last.ID)
	if answer, err := s.decide(within(t), c, q, i, &last, nil); err != nil || answer.Refusal.Place != wake.MaxQueue {
		t.Errorf("%+v, %v, want place %d", answer.Refusal, err, wake.MaxQueue)
	}
}

// A client asked with a wrong limit, and died between its join and the check.
func invalidDead(t *testing.T, s *Store, name string) {
	all := ask(t, s, 2, name, store.Permits, 1)
	wrong := asking(name, store.Permits, 2)
	node := join(t, s, 1, func() store.Request { return wrong })[0]
	behind := ask(t, s, 1, name, store.Permits, 1)[0]
	for _, waiting := range []store.Request{all[1], behind} {
		suites.Refused(t, s, waiting)
	}
	if _, err := s.Acquire(within(t), asking(name, store.Permits, 2)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid beside a holder with another limit", err)
	}
	suites.Release(t, s, all[0])
	suites.Granted(t, s, all[1])
	suites.Release(t, s, all[1])
	suites.Refused(t, s, behind)
	if err := s.wire.Do(within(t), &wire.Call{Op: wire.Delete(node, wire.AnyVersion)}); err != nil {
		t.Fatal(err)
	}
	suites.Granted(t, s, behind)
}

// Single attempts joined and were not granted yet, so others are granted beside them.
func besideAttempt(t *testing.T, s *Store, name string) {
	attempt := func() store.Request {
		req := asking(name, store.Permits, 3)
		req.Queue = false
		return req
	}
	before := ask(t, s, 1, name, store.Permits, 3)[0]
	node := join(t, s, 1, attempt)[0]
	suites.Release(t, s, before)
	holder := ask(t, s, 1, name, store.Permits, 3)[0]
	join(t, s, 1, attempt)
	waiter := ask(t, s, 1, name, store.Permits, 3)[0]
	if r := suites.Refused(t, s, waiter); r.Place != 1 || r.Waiters != 0 {
		t.Errorf("place %d and %d waiters, want 1 and 0", r.Place, r.Waiters)
	}
	if r := suites.Refused(t, s, request(name)); len(r.Holders) != 1 || r.Holders[0].ID != holder.ID || r.Waiters != 1 {
		t.Errorf("%+v, want one holder and one waiter", r)
	}
	q, err := s.look(within(t), s.claimOf(wake.Key{Name: name, ID: waiter.ID}).parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, most := range []int{1, len(q.nodes)} {
		if n, _, err := s.holders(within(t), q, most); err != nil || n != 3 {
			t.Errorf("%d holders and attempts, %v, want 3", n, err)
		}
	}
	s.wire.Send(&wire.Call{Op: wire.Delete(node, wire.AnyVersion)})
	if err := s.Wait(within(t), name, waiter.ID); err != nil {
		t.Fatal(err)
	}
	suites.Granted(t, s, waiter)
}

package zkstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// Renewals are sent at about the time when their grants end.
func lastMoment(t *testing.T, server *servers.ZooKeeper, root string) {
	s, other := openQuick(t, "zk://"+server.Addr()+root), openQuick(t, "zk://"+server.Addr()+root)
	ctx := within(t)
	const workers, rounds = 16, 12
	var extended atomic.Int32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				req := request(fmt.Sprint("a", w, "-", i))
				req.TTL = minTTL
				next := request(req.Name)
				_, err := s.Acquire(ctx, req)
				time.Sleep(time.Until(s.claimOf(wake.Key{Name: req.Name, ID: req.ID}).endsAt(s)) - time.Millisecond + rand.N(4*time.Millisecond))
				renewal := suites.Renewal(req)
				renewal.TTL = time.Hour
				out, err2 := s.Renew(ctx, []store.Renewal{renewal})
				answer, err3 := other.Acquire(ctx, next)
				if err := errors.Join(err, err2, err3, s.Leave(ctx, req.Name, req.ID), other.Leave(ctx, req.Name, next.ID)); err != nil {
					t.Error(err)
					return
				}
				renewed := out[0].Status == store.Extended
				if answer.Granted() == renewed {
					t.Errorf("renewed: %v, and the next is granted: %v", renewed, answer.Granted())
				}
				if renewed {
					extended.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d in time", extended.Load(), workers*rounds)
}

// A renewal read the record before one for tokens wrote it, and writes it back after that.
func overlapping(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, admin, s := behind(t, server, root)
	req := request("a")
	first := try(t, s, req)
	join(t, s, 1, func() store.Request { return request("a") }) // so that the renewal for tokens reads the queue
	c := s.claimOf(wake.Key{Name: req.Name, ID: req.ID})
	rec, _ := s.state(c)
	held := make(chan struct{})
	proxy.ToServer.When(
		func(seen []byte) bool { return bytes.Count(seen, []byte(c.path()+"\x00")) > 1 }, // written, and then read
		func() { proxy.ToClient.Hold(); close(held) })
	renewal := suites.Renewal(req)
	renewal.Tokens = 8
	ctx, renewed, saved := within(t), make(chan store.Renewed, 1), make(chan error, 1)
	go func() { renewed <- s.renewOne(ctx, &renewal) }()
	<-held
	go func() { saved <- s.write(s.saving(ctx, c, rec)) }()
	suites.Eventually(t, "the earlier record is not written", func() bool {
		call := &wire.Call{Op: wire.Get(c.path(), false)}
		return admin.Do(ctx, call) == nil && bytes.Equal(call.Data, rec.encode())
	})
	proxy.Heal()
	must(t, <-saved)
	if out := <-renewed; out.Err != nil || out.Tokens != 8 || out.Token <= first.Token {
		t.Errorf("%+v, want 8 tokens above %d", out, first.Token)
	}
}

// endsAt returns the time at which a claim ends, or the current time if it has ended.
func (c *claim) endsAt(s *Store) time.Time {
	if c == nil {
		return time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.end
}

// A call that began in one session and would be sent in the next fails.
func nextSession(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, admin, s := behind(t, server, root+"?session=2s")
	ctx := within(t)
	sent := false
	for !sent { // on a busy machine a call may begin too late
		try(t, s, request("old"))
		before := s.currentSession()
		proxy.Cut()
		suites.Eventually(t, "the session does not end", func() bool { return len(nodes(t, admin, root)) <= 1 })
		req := request("a")
		proxy.Heal()
		for s.currentSession() == before {
			_, err := s.Acquire(ctx, req)
			if err == nil { // the call began in the next session
				err = s.Leave(ctx, req.Name, req.ID)
			}
			sent = sent || errors.Is(err, errLost)
		}
		for _, node := range nodes(t, admin, root) {
			if strings.Contains(node, req.ID.String()) {
				t.Errorf("%s is left by a call that failed", node)
			}
		}
	}
}

// keep makes a kept record.
func keep(t *testing.T, s *Store, name string, state store.State, d time.Duration) store.ID {
	t.Helper()
	req := request(name)
	if answer := try(t, s, req); !answer.Granted() {
		t.Fatalf("%s: %+v", name, answer.Refusal)
	}
	must(t, s.Release(within(t), name, req.ID, store.Keep{State: state, For: d}))
	return req.ID
}

// A kept record and its name are removed by their client after their time.
func keptForATime(t *testing.T, server *servers.ZooKeeper, root string) {
	admin, s := connect(t, server.Addr()), openQuick(t, "zk://"+server.Addr()+root)
	for i := range 20 {
		keep(t, s, fmt.Sprint("done", i), store.Done, time.Second)
		keep(t, s, fmt.Sprint("cooling", i), store.Cooling, time.Second)
	}
	s.mu.Lock()
	s.clock.server -= 100 // the client's estimate of the servers' time is a little behind
	s.mu.Unlock()
	suites.Eventually(t, "kept records are left", func() bool { return len(nodes(t, admin, root)) == 0 })
}

// The request that removes a kept record arrives late. By then the name has a newer record of
// another identity.
func removedLate(t *testing.T, server *servers.ZooKeeper, root string) {
	ctx := within(t)
	url := "zk://" + server.Addr() + root
	s := openQuick(t, url)
	for _, test := range []struct {
		name   string
		first  time.Duration // for how long the first record is kept
		before int           // how often the node is read before it is removed
		remove func(s *Store, first store.ID) error
	}{
		{"list", 50 * time.Millisecond, 1, func(s *Store, _ store.ID) error { _, err := s.List(ctx, store.Query{Name: "list"}); return err }},
		{"break", time.Hour, 2, func(s *Store, first store.ID) error { return s.Break(ctx, "break", first) }},
	} {
		gone := openQuick(t, url)
		first := keep(t, gone, test.name, store.Done, test.first)
		gone.Close()
		if test.first < time.Hour {
			time.Sleep(test.first)
		}

		proxy := faultproxy.Start(t, server.Addr())
		slow := openQuick(t, "zk://"+proxy.Addr()+root)
		parent, _ := slow.place(test.name)
		held, done := make(chan struct{}), make(chan error, 1)
		proxy.ToServer.When(
			func(seen []byte) bool { return bytes.Count(seen, []byte(parent+"/")) > test.before },
			func() { proxy.ToServer.Hold(); close(held) })
		go func() { done <- test.remove(slow, first) }()
		select {
		case <-held:
		case err := <-done:
			t.Fatalf("%s: the record was not removed: %v", test.name, err)
		}
		if err := s.Break(ctx, test.name, first); err != nil && !errors.Is(err, store.ErrNotHeld) { // it may have expired
			t.Fatal(err)
		}
		second := keep(t, s, test.name, store.Done, time.Hour)
		proxy.Heal()
		if err := <-done; err != nil && !errors.Is(err, store.ErrNotHeld) {
			t.Errorf("%s: %v", test.name, err)
		}
		answer := try(t, s, request(test.name))
		if answer.Granted() || len(answer.Refusal.Holders) != 1 || answer.Refusal.Holders[0].ID != second {
			t.Errorf("%s: %+v, want that the newer record is there", test.name, answer)
		}
		slow.Close()
	}
}

// Clients that keep records also remove the records of processes that have ended, on names that are
// no longer in use.
func sweptByOthers(t *testing.T, server *servers.ZooKeeper, root string) {
	ctx := within(t)
	admin := connect(t, server.Addr())
	url := "zk://" + server.Addr() + root
	gone := openQuick(t, url)
	for i := range 200 {
		keep(t, gone, fmt.Sprint("gone", i), store.Done, 50*time.Millisecond)
	}
	parent, _ := gone.place("foreign") // its record cannot be read, but the names behind it are swept
	req := request("foreign")
	foreign := wire.Create(parent+"/k"+requestNode(&req)+firstSeq, []byte("x"), gone.acl, wire.Persistent)
	must(t, errors.Join(gone.ensure(ctx, parent), admin.Do(ctx, &wire.Call{Op: foreign})))
	gone.Close()
	s := openQuick(t, url)
	n := 0
	servers.Poll(t, limit, func() error {
		keep(t, s, fmt.Sprint("new", n), store.Done, 50*time.Millisecond)
		n++
		if left := nodes(t, admin, root); strings.Contains(fmt.Sprint(left), "gone") {
			return fmt.Errorf("%d nodes are left after %d more", len(left), n)
		}
		return nil
	})
	t.Logf("gone after %d more", n)
}

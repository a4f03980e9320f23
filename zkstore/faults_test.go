package zkstore

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

var names = flag.Int("names", 5_000, "how many names to lock and release")

// limit bounds the wait for events that should happen soon. Only a failing test waits that long.
const limit = time.Minute

// within returns a context for a whole test.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

var request = suites.Request

// try repeats a request until there is an answer.
func try(t *testing.T, s *Store, req store.Request) store.Answer {
	t.Helper()
	var answer store.Answer
	servers.Poll(t, limit, func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		answer, err = s.Acquire(ctx, req)
		return err
	})
	return answer
}

// has matches requests that contain an identity.
func has(id store.ID) func([]byte) bool {
	return func(b []byte) bool { return bytes.Contains(b, []byte(id.String())) }
}

// behind returns a store that connects through a proxy. Its root may have parameters of the URL.
func behind(t *testing.T, server *servers.ZooKeeper, root string) (*faultproxy.Proxy, admin, *Store) {
	t.Helper()
	proxy := faultproxy.Start(t, server.Addr())
	return proxy, connect(t, server.Addr()), openQuick(t, "zk://"+proxy.Addr()+root)
}

// The tests of client faults share one server, because starting one takes long. The tests of server
// faults are in test/faults.
func TestFaultsOfASingleServer(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	t.Parallel()
	for i, test := range []struct {
		name string
		run  func(t *testing.T, server *servers.ZooKeeper, root string)
	}{
		{"a waiter whose reply was lost is found by its identity", lostReply},
		{"go-zookeeper 237: no node is left by a call that failed or was cancelled", cancelled},
		{"curator 1121: a node of an earlier session does not count", earlierSession},
		{"a node that was taken over outlives the session it came from", takenOver},
		{"nothing is left of many names", manyNames},
		{"the outcome of a renewal at the deadline is true", lastMoment},
		{"a renewal for tokens never returns an earlier block", overlapping},
		{"a call that is sent in the next session leaves nothing", nextSession},
		{"a request that joined twice leaves nothing", joinedTwice},
		{"a grant whose renewals no longer have a caller ends with its TTL", renewedUnheard},
		{"a renewal whose reply was lost does not set the clock back", renewedLongAgo},
		{"opening a store ends with its context", openUnheard},
		{"opening a store survives the loss of its connection", openedThroughACut},
		{"a take-over whose reply was lost ends with its TTL", takenOverUnheard},
		{"a kept record is removed after its time", keptForATime},
		{"records kept by processes that ended are removed by others", sweptByOthers},
		{"removing a kept record late does not remove a newer one", removedLate},
		{"a holder is listed with its token after many segments were added", listedAfterSegments},
		{"a dead holder is listed for as long as it excludes others", listedWhenDead},
		{"a waiter is woken when its session is resumed", wokenByResumption},
		{"a listing from far away takes a few round trips", listedFromAfar},
		{"few records are read behind a holder that has left", readBehindOneThatLeft},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, server, fmt.Sprint("/root", i))
		})
	}
}

// The session of a dead holder lasts longer than its TTL.
func listedWhenDead(t *testing.T, server *servers.ZooKeeper, root string) {
	dead := openQuick(t, "zk://"+server.Addr()+root+"?session=3s")
	req := request("a")
	req.TTL = minTTL
	try(t, dead, req)
	dead.die()
	s := openQuick(t, "zk://"+server.Addr()+root)
	refusals, listed := 0, true
	for ; !try(t, s, request("a")).Granted(); refusals++ {
		if !listed {
			t.Fatalf("refused, and no holder is listed")
		}
		page, err := s.List(within(t), store.Query{Name: "a"})
		must(t, err)
		listed = len(page.Locks) == 1 && len(page.Locks[0].Holders) == 1
	}
	if refusals == 0 {
		t.Error("the session ended too early for this test")
	}
}

// The reply to a request that joined the queue is lost. The repeated request keeps its place, and
// has only one node.
func lostReply(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, admin, s := behind(t, server, root+"?session=20s")
	other := openQuick(t, "zk://"+server.Addr()+root)
	try(t, other, request("a"))
	req := suites.Queued("a")
	places := func() []string { return mentioning(nodes(t, admin, root), req.ID) }
	// The first request is for a name that is free.
	joins := func(b []byte) bool {
		node := "-" + req.ID.String() + "-"
		return bytes.Count(b, []byte(node)) > bytes.Count(b, []byte(node+firstSeq))
	}
	proxy.Lose(t, joins, func(ctx context.Context) error {
		_, err := s.Acquire(ctx, req)
		return err
	}, func() (string, error) { return fmt.Sprint(places()), nil })
	before := places()
	if answer := try(t, s, req); answer.Granted() {
		t.Error("granted beside the holder")
	}
	if after := places(); len(before) != 1 || !slices.Equal(after, before) {
		t.Errorf("nodes %v after %v, want one and the same", after, before)
	}
}

// Every request with a high floor adds a segment to the table of tokens. The holder's record has no
// token, because it follows from the change that granted it.
func listedAfterSegments(t *testing.T, server *servers.ZooKeeper, root string) {
	s := openQuick(t, "zk://"+server.Addr()+root)
	req := request("a")
	token := try(t, s, req).Token
	last := token
	for i := range 20 {
		high := request(fmt.Sprint("b", i))
		high.Floor = last + span*block
		last = try(t, s, high).Token
	}
	other := openQuick(t, "zk://"+server.Addr()+root)
	page, err := other.List(within(t), store.Query{Name: "a"})
	if err != nil || len(page.Locks) != 1 || len(page.Locks[0].Holders) != 1 || page.Locks[0].Holders[0].Token != token {
		t.Errorf("listed %+v, %v, want the token %d", page.Locks, err, token)
	}
	// A table may have fewer segments than it could.
	old, stat := table{}, wire.Stat{Mzxid: 100}
	if err := old.decode([]byte("2 50 10 5"), &stat); err != nil || !slices.Equal(old.segments, []segment{{100, 50}, {10, 5}}) {
		t.Errorf("segments %v, %v", old.segments, err)
	}
	if data := string(old.encode(1000)); data != "2 1000 100 50 10 5" {
		t.Errorf("encoded as %q", data)
	}
	if data := string((&table{}).encode(1000)); data != "2 1000" {
		t.Errorf("the first table is encoded as %q", data)
	}
	for _, bad := range []string{"", "2", "1 50", "2 50 10", "2 x"} {
		if err := old.decode([]byte(bad), &stat); err == nil {
			t.Errorf("%q was read as a table", bad)
		}
	}
}

// The connection is lost while the store is opened. The store is then opened over the next
// connection.
func openedThroughACut(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy := faultproxy.Start(t, server.Addr())
	cut := proxy.CutOn(func(request []byte) bool { return bytes.Contains(request, []byte(root)) })
	go func() {
		<-cut
		proxy.Heal()
	}()
	s, err := store.Open(within(t), "zk://"+proxy.Addr()+root)
	must(t, err)
	s.Close()
}

// In samuel/go-zookeeper #237, a failed or cancelled call left its node in the queue, which
// blocked all others.
func cancelled(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, admin, s := behind(t, server, root+"?session=20s")
	for i := range 6 {
		req := suites.Queued("cancelled")
		lost := proxy.HoldRepliesAfter(has(req.ID))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx, req)
			ended <- err
		}()
		<-lost
		suites.Eventually(t, "the server does not reply", func() bool { return proxy.ToClient.Waiting() > 0 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire: %v", err)
		}
		if i%2 == 1 {
			proxy.Cut()
		}
		proxy.Heal()
		servers.Poll(t, limit, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return s.Leave(ctx, req.Name, req.ID)
		})
		if left := nodes(t, admin, root); len(left) != 0 {
			t.Fatalf("round %d: left %v", i, left)
		}
	}
}

// In curator #1121, a lock was acquired with a node of the previous session, which then ended.
func earlierSession(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, admin, s := behind(t, server, root+"?session=2s")
	req := request("a")
	try(t, s, req)
	waiter := suites.Queued("a")
	try(t, s, waiter)
	ended := make(chan error, 1)
	go func() { ended <- s.Wait(t.Context(), waiter.Name, waiter.ID) }()
	before := s.currentSession()
	proxy.Drop()
	suites.Eventually(t, "the session does not end", func() bool { return len(nodes(t, admin, root)) <= 1 })
	proxy.Cut()
	proxy.Heal()
	if err := <-ended; err == nil {
		t.Log("Wait was woken by the end of its connection") // the next answer says so as well
	}
	renewals := []store.Renewal{suites.Renewal(req)}
	servers.Poll(t, limit, func() error {
		out, err := s.Renew(t.Context(), renewals)
		if err == nil && out[0].Status != store.Gone {
			err = fmt.Errorf("status %d", out[0].Status)
		}
		return err
	})
	// Another client takes the name, and the old waiter queues behind it in the new session.
	other := openQuick(t, "zk://"+server.Addr()+root)
	if !try(t, other, request("a")).Granted() {
		t.Fatal("a dead holder holds")
	}
	if answer := try(t, s, waiter); answer.Granted() || answer.Refusal.Place != 1 {
		t.Errorf("%+v: want the first place", answer)
	}
	if s.currentSession() == before {
		t.Error("the session is still the same")
	}
}

// If a node of the same identity belongs to another session, a new node takes over its place. The
// end of the other session then has no effect.
func takenOver(t *testing.T, server *servers.ZooKeeper, root string) {
	one, two := openQuick(t, "zk://"+server.Addr()+root+"?session=4s"), openQuick(t, "zk://"+server.Addr()+root+"?session=20s")
	req := request("a")
	first := try(t, one, req)
	second := try(t, two, req)
	if first.Token != second.Token {
		t.Errorf("token %d, then %d", first.Token, second.Token)
	}
	one.die()
	watch := connect(t, server.Addr())
	time.Sleep(5 * time.Second) // longer than the session; nothing must happen
	if left := nodes(t, watch, root); len(left) != 2 {
		t.Errorf("nodes %v, want a name and its holder", left)
	}
}

func manyNames(t *testing.T, server *servers.ZooKeeper, root string) {
	admin := connect(t, server.Addr())
	c, err := holdfast.Open(t.Context(), "zk://"+server.Addr()+root)
	must(t, err)
	defer c.Close()
	begin := time.Now()
	var wg sync.WaitGroup
	const workers = 64
	for w := range workers {
		wg.Go(func() {
			for i := w; i < *names; i += workers {
				if err := suites.Pair(t.Context(), c, fmt.Sprint("name:", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	t.Logf("%d names in %v, %.0f pairs/s", *names, took, float64(*names)/took.Seconds())
	if left := nodes(t, admin, root); len(left) > 0 {
		t.Errorf("%d nodes are left, such as %s", len(left), left[0])
	}
	suites.Eventually(t, "more is left than the table of tokens", func() bool { return len(admin.children(t, root)) <= 1 })
}

// The name is released while a waiter has no connection, so no event reaches the waiter. Servers
// forget the watches of a connection, so the waiter must be woken when its session is resumed.
func wokenByResumption(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy := faultproxy.Start(t, server.Addr())
	holds, waits := openQuick(t, "zk://"+server.Addr()+root), openQuick(t, "zk://"+proxy.Addr()+root+"?session=20s")
	waits.heartbeat = time.Hour // so that the place is kept, and nothing else wakes the waiter
	holder, waiter := request("a"), suites.Queued("a")
	if !try(t, holds, holder).Granted() || try(t, waits, waiter).Granted() {
		t.Fatal("want one holder")
	}
	session := waits.currentSession()
	ctx, woken := within(t), make(chan error, 1)
	go func() { woken <- waits.Wait(ctx, waiter.Name, waiter.ID) }()
	proxy.Cut()
	suites.Release(t, holds, holder)
	proxy.Heal()
	if err := <-woken; err != nil {
		t.Fatalf("Wait: %v, want a wake-up", err)
	}
	if !try(t, waits, waiter).Granted() {
		t.Error("the waiter was woken and not granted")
	}
	if now := waits.currentSession(); now != session {
		t.Errorf("session %x, then %x: the session was not resumed", session, now)
	}
}

// A page has 100 names, and a client gives it three seconds.
func listedFromAfar(t *testing.T, server *servers.ZooKeeper, root string) {
	const n = 150
	near, proxy := openQuick(t, "zk://"+server.Addr()+root), faultproxy.Start(t, server.Addr())
	for i := range n {
		if name := fmt.Sprint("a", i); !try(t, near, request(name)).Granted() {
			t.Fatalf("%s is held", name)
		}
	}
	far := suites.Client(t, openQuick(t, "zk://"+proxy.Addr()+root))
	proxy.ToClient.Delay(20 * time.Millisecond)
	listed := 0
	for _, err := range far.List(within(t), "") {
		if listed++; err != nil {
			t.Fatalf("after %d names: %v", listed-1, err)
		}
	}
	if listed != n {
		t.Errorf("%d names are listed, want %d", listed, n)
	}
}

// On a contended name, the holder often leaves between the listing of the queue and the reading of its record.
func readBehindOneThatLeft(t *testing.T, server *servers.ZooKeeper, root string) {
	proxy, _, s := behind(t, server, root)
	all := ask(t, s, 5, "a", store.Exclusive, 0)
	parent, _ := s.place("a")
	q, err := s.look(within(t), parent)
	must(t, err)
	suites.Release(t, s, all[0])
	var last atomic.Bool
	proxy.ToServer.When(has(all[4].ID), func() { last.Store(true) })
	if n, _, err := s.holders(within(t), q, store.MaxHolders); err != nil || n != 1 || last.Load() {
		t.Errorf("%d, %v, want one holder; the last of four waiters was read: %v", n, err, last.Load())
	}
}

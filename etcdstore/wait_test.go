package etcdstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// patient opens a store whose heartbeat is longer than any test takes, so that waiters keep their
// places.
func patient(t *testing.T, addr string) *Store { return openQuick(t, url(addr), time.Hour) }

func queued(t *testing.T, s *Store, name string, n int) []store.Request {
	t.Helper()
	list := make([]store.Request, n)
	for i := range list {
		list[i] = suites.Queued(name)
		must(t, s, list[i], i+1)
	}
	return list
}

func woken(s *Store, req store.Request) bool {
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	return s.waits.all[claimKey{req.Name, req.ID}].gone
}

// A write between the read and the watch makes the waiter ask again, but only once: its watches
// stay. Otherwise a waiter would ask all the time on a busy server.
func TestAWatchThatBeginsLateMakesItsWaiterAskOnce(t *testing.T) {
	t.Parallel()
	s := patient(t, servers.StartEtcd(t, servers.EtcdOptions{}).Addr())
	holder := suites.Request("a")
	must(t, s, holder, 0)
	waiter := queued(t, s, "a", 1)[0]
	key := claimKey{"a", waiter.ID}
	ids := func() []int64 {
		s.waits.mu.Lock()
		defer s.waits.mu.Unlock()
		return slices.Clone(s.waits.all[key].ids)
	}
	// Set the revision of the read to one before the holder was granted.
	s.waits.mu.Lock()
	watches := s.waits.all[key].watches
	s.waits.cancel(s.waits.all[key])
	s.waits.mu.Unlock()
	s.waits.expect(key, watches, 1)
	begun := ids()
	if err := s.Wait(suites.Limited(t), "a", waiter.ID); err != nil {
		t.Fatalf("a watch that begins late: %v", err)
	}
	must(t, s, waiter, 1)
	if again := ids(); !slices.Equal(begun, again) {
		t.Errorf("watches %v became %v", begun, again)
	}
	if err := s.Wait(within(t, 100*time.Millisecond), "a", waiter.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("woken again though nothing happened: %v", err)
	}
	suites.Release(t, s, holder)
	if err := s.Wait(suites.Limited(t), "a", waiter.ID); err != nil {
		t.Fatalf("the release: %v", err)
	}
	must(t, s, waiter, 0)
}

// A watch that begins may tell of an earlier revision than the change that another one has reported.
func TestOlderNewsDoNotHideAChange(t *testing.T) {
	t.Parallel()
	s := patient(t, servers.StartEtcd(t, servers.EtcdOptions{}).Addr())
	must(t, s, suites.Request("a"), 0)
	waiter := queued(t, s, "a", 1)[0]
	key, w := claimKey{"a", waiter.ID}, &s.waits
	w.mu.Lock()
	state, stream := w.all[key], w.stream
	id, watches := state.ids[0], state.watches
	w.mu.Unlock()
	for _, revision := range []int64{3000, 1000} {
		noError(t, w.received(stream, &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: revision}, WatchId: id}))
	}
	w.expect(key, watches, 2000)
	if err := s.Wait(within(t, 100*time.Millisecond), "a", waiter.ID); err != nil {
		t.Errorf("Wait: %v, though the server told of revision 3000 and was read at 2000", err)
	}
}

// A release wakes one waiter, so its cost does not grow with the queue.
func TestOnlyTheNextWaiterIsWoken(t *testing.T) {
	t.Parallel()
	s := patient(t, servers.StartEtcd(t, servers.EtcdOptions{}).Addr())
	holder := suites.Request("a")
	must(t, s, holder, 0)
	queue := queued(t, s, "a", 5)
	// All names share a stream, so a later event of another name arrives later.
	mark := func() {
		t.Helper()
		h := suites.Request("mark")
		must(t, s, h, 0)
		w := queued(t, s, "mark", 1)[0]
		suites.Release(t, s, h)
		noError(t, s.Wait(suites.Limited(t), "mark", w.ID))
		suites.Leave(t, s, w)
	}
	check := func(what string, from, want int) {
		t.Helper()
		mark()
		for i := from; i < len(queue); i++ {
			if woken(s, queue[i]) != (i == want) {
				t.Errorf("%s: waiter %d: woken %v", what, i+1, woken(s, queue[i]))
			}
		}
	}
	check("nothing happened", 0, -1)
	suites.Release(t, s, holder)
	check("released", 0, 0)
	must(t, s, queue[0], 0)
	check("granted", 1, 1)
	must(t, s, queue[1], 1)
	noError(t, s.Leave(suites.Limited(t), "a", queue[2].ID))
	check("left", 3, 3)
}

// A waiter reads a limited number of requests in front of it, and none behind it.
func TestTheCostOfAskingDoesNotGrowWithTheQueue(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy := faultproxy.Start(t, server.Addr())
	far, near := patient(t, proxy.Addr()), patient(t, server.Addr())
	must(t, near, suites.Request("a"), 0)
	first := suites.Queued("a")
	must(t, far, first, 1)
	read := func(req store.Request, place int) int64 {
		t.Helper()
		before := proxy.ToClient.Bytes()
		for range 10 {
			must(t, far, req, place)
		}
		return (proxy.ToClient.Bytes() - before) / 10
	}
	alone := read(first, 1)
	for i := range maxAhead {
		must(t, near, suites.Queued("a"), i+2)
	}
	middle := suites.Queued("a")
	must(t, far, middle, maxAhead+2)
	few := read(middle, maxAhead+2)
	for i := range 3 * maxAhead {
		must(t, near, suites.Queued("a"), maxAhead+i+3)
	}
	last := suites.Queued("a")
	must(t, far, last, 4*maxAhead+3)
	if crowded := read(first, 1); crowded > alone+alone/2 {
		t.Errorf("the first waiter reads %d bytes to ask, and %d when nobody is behind it", crowded, alone)
	}
	if many := read(last, 4*maxAhead+3); many > few+few/2 {
		t.Errorf("a waiter behind %d others reads %d bytes to ask, and one behind %d reads %d", 4*maxAhead+2, many, maxAhead+1, few)
	}
}

// The server reads the whole queue for each request that joins it.
func TestARequestIsRefusedIfTooManyWait(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	s, client := patient(t, server.Addr()), direct(t, server.Addr())
	must(t, s, suites.Request("a"), 0)
	first := suites.Queued("a")
	must(t, s, first, 1)
	value := (&record{ID: store.NewID(), Mode: store.Exclusive, Weight: 1}).value()
	var ops []clientv3.Op
	for i := range wake.MaxQueue - 1 {
		ops = append(ops, clientv3.OpPut(s.keys.key("a", kindWaiting, int64(i+1)), string(value)))
	}
	for batch := range slices.Chunk(ops, 100) {
		_, err := client.Txn(t.Context()).Then(batch...).Commit()
		noError(t, err)
	}
	count := func() int64 {
		resp, err := client.Get(t.Context(), s.queue("a"), clientv3.WithRange(s.keys.behind("a")), clientv3.WithCountOnly())
		noError(t, err)
		return resp.Count
	}
	_, err := s.Acquire(t.Context(), suites.Queued("a"))
	if err == nil || errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "most that can wait") {
		t.Errorf("error %v, want one that says that too many wait", err)
	}
	if n := count(); n != wake.MaxQueue {
		t.Errorf("%d requests in the queue, want %d", n, wake.MaxQueue)
	}
	must(t, s, first, 1) // those who wait already are not affected
	_, err = client.Delete(t.Context(), s.keys.key("a", kindWaiting, 1))
	noError(t, err)
	must(t, s, suites.Queued("a"), wake.MaxQueue)
}

// The remaining time of each holder is asked for. One after the other, that would take longer than a caller
// waits, and the error would not say that the name is held.
func TestARefusalByManyHoldersTakesFewRoundTrips(t *testing.T) {
	t.Parallel()
	const trip = 200 * time.Millisecond
	proxy, far, near, _ := behind(t)
	for range store.MaxHolders {
		reader := suites.Request("a")
		reader.Mode = store.Shared
		must(t, near, reader, 0)
	}
	must(t, far, suites.Request("b"), 0) // to be connected
	proxy.ToClient.Delay(trip)
	begin := time.Now()
	r := suites.Refused(t, far, suites.Request("a"))
	if took := time.Since(begin); took > store.MaxHolders*trip/2 || len(r.Holders) != store.MaxHolders {
		t.Errorf("a refusal by %d holders took %v", len(r.Holders), took)
	}
}

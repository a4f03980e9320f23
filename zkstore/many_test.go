package zkstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
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

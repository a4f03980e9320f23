package rediscore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func TestDeadWaitersBehindALiveOneAreRemoved(t *testing.T) {
	q := newQueue(t)
	before, beforeReq := q.open(), q.request()
	q.refused(before, beforeReq)
	for range 3 {
		q.refused(q.open(), q.request())
	}
	live, liveReq := q.open(), q.request()
	q.refused(live, liveReq)
	for range 3 {
		q.refused(q.open(), q.request())
	}
	for range 6 { // longer than a heartbeat, in which only two of the waiters ask
		time.Sleep(heartbeat / 4)
		q.refused(before, beforeReq)
		q.refused(live, liveReq)
	}
	if n := suites.Refused(t, q.open(), plain("x")).Waiters; n != 2 {
		t.Errorf("%d waiters, want the two that are alive", n)
	}
	if n := q.server.Must("HLEN", "holdfast:records:x").(int64); n != 2 {
		t.Errorf("%d records of waiters, want 2", n)
	}
}

// The TTL of the first holder is a minute. The keys must not live that long for the next holders.
func TestKeysExpireSoonAfterTheirGrants(t *testing.T) {
	q := newQueue(t)
	s, req := q.open(), q.request()
	req.TTL = heartbeat
	q.refused(s, req)
	dead := q.request()
	dead.TTL = heartbeat
	q.refused(q.open(), dead)
	q.release()
	for _, key := range []string{"lock", "queue", "records"} {
		left := time.Duration(q.server.Must("PTTL", "holdfast:"+key+":x").(int64)) * time.Millisecond
		if left <= 0 || left > heartbeat*5/4 {
			t.Errorf("the key %s expires in %v, want within 1.25 × the TTL of %v", key, left, heartbeat)
		}
	}
}

// A program with the right to publish to the channel can send such a message.
func TestAForgedMessageGivesNoLease(t *testing.T) {
	q := newQueue(t)
	s, req := q.wait()
	channel := q.server.Must("PUBSUB", "CHANNELS", "*").([]any)[0].(string)
	sentTime := func() string {
		return strings.Split(q.server.Must("HGET", "holdfast:records:x", "w"+req.ID.String()).(string), "\t")[6]
	}
	sent := sentTime()
	for _, forged := range []string{
		"999999999999999\t1000\t5\t1\t0", // sent in the future
		"1\t1000000000\t5\t1\t0",         // granted for 277 hours
		sent + "\t1000\t0\t1\t0",         // no token
		sent + "\t1000\t5\t1000000\t0",   // more tokens than were requested
		sent + "\t-1000\t5\t1\t0",        // granted for a negative time
		"-5\t1000\t5\t1\t0",              // sent at a negative time
	} {
		q.server.Must("PUBLISH", channel, req.ID.String()+"\t0\t"+forged+"\tholdfast:lock:x")
		q.woken(s, req)
		q.refused(s, req)
		sent = sentTime()
	}
	// A message that fits is accepted, but for no longer than the request asked for.
	q.server.Must("PUBLISH", channel, req.ID.String()+"\t0\t"+sent+"\t1000000000\t5\t1\t0\tholdfast:lock:x")
	q.woken(s, req)
	if answer := q.ask(s, req); answer.TTL > heartbeat {
		t.Errorf("a forged message gave a lease of %v", answer.TTL)
	}
}

// Without the right to subscribe, waiters get the lock by polling. The program must learn why that
// is slow.
func TestAWaiterIsToldOnceThatItHasNoRightToSubscribe(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true, ACL: []string{
		"user default on nopass ~* &* +@all",
		"user mute on >secret ~* &* +@all -subscribe",
	}})
	var mu sync.Mutex
	var told []error
	observe := holdfast.Observer(func(e holdfast.Event) {
		if e.Kind == holdfast.EventError {
			mu.Lock()
			told = append(told, e.Err)
			mu.Unlock()
		}
	})
	owner := suites.Client(t, open(t, server.Addr()))
	mute := suites.Client(t, openAs(t, server.Addr(), "mute", "secret", Config{}), holdfast.WithObserver(observe))
	held, err := owner.Lock(t.Context(), "x")
	must(t, err)
	time.AfterFunc(3*heartbeat, func() { held.Unlock(context.Background()) })
	must(t, suites.Pair(t.Context(), mute, "x"))
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 1 || !strings.Contains(told[0].Error(), "NOPERM") || !strings.Contains(told[0].Error(), "give it the rights") {
		t.Errorf("told %v, want once that it has no right to subscribe", told)
	}
}

// The replies are held, so a call that waits for the reply to another call fails this test.
func TestConcurrentCallsToAFarServerTakeOneRoundTrip(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	proxy := faultproxy.Start(t, server.Addr())
	s := open(t, proxy.Addr())
	load := func(n int) *sync.WaitGroup {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { suites.Granted(t, s, plain(fmt.Sprint("n", n, ".", i))) })
		}
		return &wg
	}
	load(100).Wait() // the server learns the script
	for _, n := range []int{8, 200} {
		server.Must("CONFIG", "RESETSTAT")
		proxy.ToClient.Hold()
		wg := load(n)
		servers.Poll(t, 10*time.Second, func() error {
			if got := calls(t, server)["rpush"]; got != n {
				return fmt.Errorf("%d of %d calls have reached the server", got, n)
			}
			return nil
		})
		proxy.Heal()
		wg.Wait()
	}
}

// keysEnd checks that all keys except the counter have a TTL.
func keysEnd(t *testing.T, server *servers.Redis) {
	t.Helper()
	for _, key := range server.Must("KEYS", "*").([]any) {
		if ttl := server.Must("PTTL", key.(string)).(int64); ttl == -1 && key != "holdfast:token" {
			t.Errorf("the key %v has no TTL", key)
		}
	}
}

// The push to the first waiter empties the queue. The next waiter creates its keys again.
func TestTheFirstWaiterAfterAPushLeavesNoKeyWithoutATTL(t *testing.T) {
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
		s, other := open(t, server.Addr()), open(t, server.Addr())
		a, c := plain("n"), suites.Queued("n")
		c.Mode = mode
		suites.Granted(t, s, a)
		suites.Refused(t, s, suites.Queued("n"))
		suites.Release(t, s, a)
		suites.Refused(t, other, c)
		keysEnd(t, server)
	}
}

// The script that grants the semaphore removes the record of a dead holder, and with it the keys.
func TestAHolderAfterADeadOneLeavesNoKeyWithoutATTL(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	s := open(t, server.Addr())
	dead, next := plain("n"), plain("n")
	dead.Mode, dead.Limit, dead.TTL = store.Permits, 1, 2*time.Second
	next.Mode, next.Limit = store.Permits, 1
	suites.Granted(t, s, dead)
	time.Sleep(dead.TTL + 5*time.Millisecond)
	// With this TTL the keys need no other one than they had.
	left := time.Duration(server.Must("PTTL", "holdfast:lock:n").(int64)) * time.Millisecond
	next.TTL = left * 93 / 100
	suites.Granted(t, s, next)
	keysEnd(t, server)
}

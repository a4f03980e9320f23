package faults

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
)

// Client x hands a name over among its goroutines, which uses up tokens, while client y receives
// no replies. Then y is granted the name, and the reply to that request is lost as well.
func TestAGrantWhoseReplyWasLostHasATokenAboveEarlierHandOvers(t *testing.T) {
	onAll(t, func(t *testing.T, b *bed) {
		h := new(History)
		x := b.open()
		y, w := b.openBy()
		for range 20 { // a client that gets no reply for too long stops asking
			record(h).must(t, y, "n", longTTL).mustUnlock(t)
			w.each(func(p *faultproxy.Proxy) { p.ToClient.Hold() })
			highest := handOvers(t, x, "n", 100*time.Millisecond)
			waiting := record(h).later(t, t.Context(), y, "n", longTTL, patient)
			granted := false
			for begin := time.Now(); !granted && time.Since(begin) < 2*time.Second; {
				info, err := x.Inspect(t.Context(), "n")
				check(t, err)
				granted = len(info.Holders) > 0
			}
			w.lose()
			lease := waiting.get(limit)
			if lease.Token() <= highest {
				t.Errorf("T: token %d after %d", lease.Token(), highest)
			}
			lease.mustUnlock(t)
			if granted {
				t.Logf("token %d after %d", lease.Token(), highest)
				check(t, h.Check())
				return
			}
		}
		t.Error("y's request never reached the server")
	})
}

// handOvers lets eight goroutines take turns for a time, and returns the highest token.
func handOvers(t *testing.T, c *holdfast.Client, name string, d time.Duration) (highest int64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(d)
	for range 8 {
		all.Go(func() {
			for time.Now().Before(end) {
				lease, err := c.Lock(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				highest = max(highest, lease.Token())
				mu.Unlock()
				check(t, lease.Unlock(t.Context()))
			}
		})
	}
	all.Wait()
	return highest
}

// A client that did nothing for a while does not know that its server hangs.
func TestZooKeeperAnIdleClientLeavesAHungServer(t *testing.T) {
	t.Parallel()
	b := zookeeper(t)
	client, w := b.openBy()
	record(new(History)).must(t, client, "first", longTTL).mustUnlock(t)
	_, err := client.Inspect(t.Context(), "first") // the reply arrives after the replies to all earlier requests
	check(t, err)
	w.hangUsed()
	begin := time.Now()
	lease := record(new(History)).must(t, client, "n", longTTL)
	took := time.Since(begin)
	t.Logf("locked after %v", took)
	if took > 5*time.Second { // the default time limit of one call, after which a caller would give up
		t.Errorf("L: Lock took %v on a hung server, though another one answers", took)
	}
	lease.mustUnlock(t)
	w.heal()
	b.clean(zooSession+soon, client)
}

// Requests whose callers have given up must be cleaned up, which is not possible on a hung
// server. This must not keep a client from leaving that server.
func TestZooKeeperALeaseOutlivesAHungServerBesideACleanUp(t *testing.T) {
	t.Parallel()
	b := zooBed(t, sharedZoo(), longSession)
	const ttl = 10 * time.Second
	client, w := b.openBy()
	other := b.open()
	held := record(new(History)).must(t, client, "held", ttl)
	over := held.watch()
	blocker := record(new(History)).must(t, other, "blocked", longTTL)
	_, err := client.TryLock(t.Context(), "short", holdfast.TTL(2*time.Second), holdfast.NoRenew()) // expires during the hang
	check(t, err)
	ctx, cancel := contextWithCancel(t)
	waiting := record(new(History)).later(t, ctx, client, "blocked", longTTL)
	b.queued(other, "blocked", 1)
	w.hangUsed()
	cancel()
	<-waiting.done
	time.Sleep(ttl + ttl/5) // nothing may happen in this time
	select {
	case <-over:
		t.Errorf("a lease was lost with one of three servers: %v", held.Err())
	default:
		held.mustUnlock(t)
	}
	blocker.mustUnlock(t)
	w.heal()
	b.clean(longSession+soon, client, other)
}

// hangUsed makes the server that a client is connected to hang: it accepts connections and requests
// but does not reply.
func (w wires) hangUsed() {
	w.each(func(p *faultproxy.Proxy) {
		if p.Open() > 0 {
			p.Hold()
		}
	})
}

package faults

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
)

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

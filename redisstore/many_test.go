package redisstore

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

var leases = flag.Int("leases", 1_000, "how many leases a client holds; with 100,000 or more, the server hangs for 16s")

// holdMany takes n leases on different names.
func holdMany(t *testing.T, n int, lock func(ctx context.Context, name string, opts ...holdfast.CallOption) (*holdfast.Lease, error)) {
	t.Helper()
	const workers = 64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				if _, err := lock(t.Context(), fmt.Sprint("name:", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// After a hang, all leases are due at once.
func TestAHangCostsNoneOfManyLeases(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared: ", shared), func(t *testing.T) {
			if *leases < 100_000 {
				t.Parallel()
			}
			hangWithManyLeases(t, shared)
		})
	}
}

func hangWithManyLeases(t *testing.T, shared bool) {
	ttl, hang := 6*time.Second, 2*time.Second
	if *leases >= 100_000 {
		ttl, hang = 30*time.Second, 16*time.Second
	}
	server := servers.StartRedis(t, servers.RedisOptions{})
	var renewed, lost atomic.Int64
	c, err := holdfast.Open(t.Context(), "redis://"+server.Addr(), holdfast.WithTTL(ttl), holdfast.WithObserver(func(e holdfast.Event) {
		switch e.Kind {
		case holdfast.EventRenewed:
			renewed.Add(1)
		case holdfast.EventLost:
			lost.Add(1)
		}
	}))
	must(t, err)
	defer c.Close()
	begin := time.Now()
	if shared {
		holdMany(t, *leases, c.RLock)
	} else {
		holdMany(t, *leases, c.Lock)
	}
	taken := time.Since(begin)
	time.Sleep(ttl / 3)

	// round returns how long it takes to renew as many leases as there are. Each is due after a third
	// of the TTL.
	round := func() time.Duration {
		begin, n := time.Now(), renewed.Load()
		for renewed.Load() < n+int64(*leases) && time.Since(begin) < ttl {
			time.Sleep(10 * time.Millisecond)
		}
		return time.Since(begin)
	}
	before := round()
	server.Stop()
	time.Sleep(hang)
	server.Continue()
	first, next := round(), round()
	t.Logf("%d leases, taken in %v, hang of %v: %d lost; all renewed within %v before it, %v after it, then %v",
		*leases, taken, hang, lost.Load(), before, first, next)
	if lost.Load() > 0 {
		t.Errorf("%d of %d leases were lost", lost.Load(), *leases)
	}
	if max(before, first, next) >= ttl {
		t.Errorf("not all of %d leases were renewed within %v", *leases, ttl)
	}
}

func TestCloseReleasesManyLeases(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	c, err := holdfast.Open(t.Context(), "redis://"+server.Addr())
	must(t, err)
	defer c.Close()
	n := *leases * 3 / 2
	holdMany(t, n, c.Lock)
	begin := time.Now()
	err = c.Close()
	took := time.Since(begin)
	left := server.Must("DBSIZE").(int64) - 1 // the counter of tokens stays
	t.Logf("Close of %d leases: %v, %d left", n, took, left)
	if err != nil || left != 0 || took > 6*time.Second {
		t.Errorf("Close of %d leases: error %v after %v, %d left", n, err, took, left)
	}
}

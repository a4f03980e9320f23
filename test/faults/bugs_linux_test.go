package faults

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// These tests check for bugs that other lock libraries had. Each is named after the library.

func TestRueidislockHoldersContextLivedBeyondTheNextGrantBecauseOfAHungRenewal(t *testing.T) {
	t.Parallel()
	const ttl = 2 * shortTTL
	b := single(t, servers.RedisOptions{})
	h := new(History)
	client, w := b.openBy()
	other := b.open()
	b.warmUp(client, "n")
	// Replies are slow, but not too slow. The lease must count from the send time of its request.
	w[0].ToClient.Delay(ttl / 10)
	lease := record(h).must(t, client, "n", ttl)
	over := lease.watch()
	waiting := record(h).later(t, t.Context(), other, "n", ttl)
	b.queued(other, "n", 1)
	eventually(t, "the lease is renewed", renewed(lease))
	hung := make(chan struct{})
	w[0].ToServer.When(mentions("n"), func() {
		w.hold()
		close(hung)
	})
	ends(t, "a renewal hangs", hung)
	next := waiting.get(ttl + soon)
	next.watch()
	ends(t, "the lease", over)
	w.heal()
	eventually(t, "the next lease is renewed", renewed(next))
	next.mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client, other)
}

func TestACancelledCallReturnsAtOnceThoughTheServerHangs(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, b *bed) {
		// A single call may wait at least two seconds for its reply. All of these calls together
		// may take half of that sum.
		const calls, most = 15, 15 * time.Second
		var took time.Duration
		first := b.open()
		b.warmUp(first, "n")
		b.clean(soon, first)
		for range calls {
			client, w := b.openBy()
			seen := make(chan struct{})
			first := sync.OnceFunc(func() {
				w.hold()
				close(seen)
			})
			w.each(func(p *faultproxy.Proxy) { p.ToServer.When(mentions("n"), first) })
			// The context also has a deadline, because a library might wait for the deadline.
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			failed := make(chan error, 1)
			go func() {
				_, err := client.Lock(ctx, "n")
				failed <- err
			}()
			select {
			case <-seen:
			case <-time.After(limit):
				t.Fatal("the request was not seen")
			}
			begin := time.Now()
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("want the context's error, got %v", err)
			}
			took += time.Since(begin)
			w.heal()
			b.clean(limit, client)
		}
		if took > most {
			t.Errorf("%d cancelled calls took %v", calls, took)
		}
	}
	onRedis(t, test)
	on(t, "quorum", func(t testing.TB) *bed { return quorumBed(t, 3, servers.RedisOptions{}) }, test)
	on(t, "etcd", etcd, test)
}

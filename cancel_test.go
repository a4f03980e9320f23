package holdfast_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
)

// In rueidislock, a local waiter that was cancelled when its turn came swallowed the wake-up. The
// test runs in real time, in which both can happen at the same moment.
func TestWaiterThatIsCancelledOnItsTurnWakesTheNext(t *testing.T) {
	c := newClient(t, newProxy(memstore.New()), holdfast.WithHandover(0, 0))
	took := time.Millisecond
	for range 10_000 {
		holder := mustLock(t, c, "n")
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		lock := func(ctx context.Context, done chan<- error) {
			lease, err := c.Lock(ctx, "n")
			if err == nil {
				err = lease.Unlock(context.Background())
			}
			done <- err
		}
		go lock(ctx, first)
		runtime.Gosched()
		go lock(t.Context(), second)
		runtime.Gosched()
		delay := rand.N(took)
		go func() {
			for begin := time.Now(); time.Since(begin) < delay; {
				runtime.Gosched()
			}
			cancel()
		}()
		begin := time.Now()
		mustUnlock(t, holder)
		took = min(max(time.Since(begin), time.Microsecond), time.Millisecond)
		<-first
		select {
		case err := <-second:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the next waiter was not woken")
		}
	}
}

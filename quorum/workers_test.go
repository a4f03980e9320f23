package quorum

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

func TestGoroutinesOfCallsAreReusedAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &workers{jobs: make(chan func()), maxIdle: 3}
		wantIdle := func(want int32) {
			t.Helper()
			synctest.Wait()
			if got := w.idle.Load(); got != want {
				t.Errorf("%d goroutines are idle, want %d", got, want)
			}
		}
		for _, test := range []struct{ calls, idle int32 }{{10, 0}, {2, 1}, {5, 0}} {
			var all sync.WaitGroup
			end := make(chan struct{})
			for range test.calls {
				all.Add(1)
				w.run(ctx, func() {
					<-end
					all.Done()
				})
			}
			wantIdle(test.idle)
			close(end)
			all.Wait()
			wantIdle(3)
		}
		cancel()
		wantIdle(0)
	})
}

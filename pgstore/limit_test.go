package pgstore

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

// inBubble runs a test with the limiter of a store that is not closed, and with two kinds of
// contexts of callers: one that cannot end, and one that does not end in this test.
func inBubble(t *testing.T, test func(t *testing.T, l *limiter, end context.CancelFunc, ctx context.Context)) {
	for name, endless := range map[string]bool{"a context without an end": true, "a context with an end": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				life, end := context.WithCancel(context.Background())
				defer end()
				ctx := context.WithValue(context.Background(), key{}, "value")
				if !endless {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					defer cancel()
				}
				test(t, &limiter{life: life}, end, ctx)
			})
		})
	}
}

func TestACallEndsInTimeAlthoughItSharesAContext(t *testing.T) {
	inBubble(t, func(t *testing.T, l *limiter, _ context.CancelFunc, ctx context.Context) {
		var calls sync.WaitGroup
		for range 100 { // for several times of sharedFor
			calls.Go(func() {
				begin := time.Now()
				callCtx, cancel := l.limit(ctx)
				defer cancel()
				<-callCtx.Done()
				if took := time.Since(begin); took > callTimeout || took < callTimeout-sharedFor {
					t.Errorf("a call ended after %v, want at most %v and at least %v less", took, callTimeout, sharedFor)
				}
			})
			time.Sleep(sharedFor / 7)
		}
		calls.Wait()
	})
}

func TestACallEndsWithTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T, l *limiter, end context.CancelFunc, ctx context.Context) {
		callCtx, cancel := l.limit(ctx)
		defer cancel()
		end()
		synctest.Wait()
		if callCtx.Err() == nil || ctx.Err() != nil {
			t.Errorf("the context of the call: %v, that of its caller: %v", callCtx.Err(), ctx.Err())
		}
	})
}

func TestACallEndsWithTheContextOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(context.Background())
		defer end()
		l := &limiter{life: life}
		ctx, cancelCaller := context.WithTimeout(context.Background(), time.Second)
		defer cancelCaller()
		callCtx, cancel := l.limit(ctx)
		defer cancel()
		other, cancelOther := l.limit(context.Background())
		defer cancelOther()
		time.Sleep(time.Second)
		synctest.Wait()
		if callCtx.Err() != context.DeadlineExceeded {
			t.Errorf("the context of the call: %v, want the error of the caller's context", callCtx.Err())
		}
		if other.Err() != nil {
			t.Errorf("the context of another call: %v", other.Err())
		}
	})
}

func TestACallHasTheValuesOfItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, l *limiter, _ context.CancelFunc, ctx context.Context) {
		callCtx, cancel := l.limit(ctx)
		defer cancel()
		if callCtx.Value(key{}) != "value" {
			t.Errorf("the value is %v", callCtx.Value(key{}))
		}
	})
}

// Package context starts a goroutine for a context that it does not know.
func TestTheContextOfACallNeedsNoGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T, l *limiter, _ context.CancelFunc, ctx context.Context) {
		before := runtime.NumGoroutine()
		callCtx, cancel := l.limit(ctx)
		defer cancel()
		stop := context.AfterFunc(callCtx, func() {})
		defer stop()
		if n := runtime.NumGoroutine(); n != before {
			t.Errorf("%d goroutines, want %d", n, before)
		}
	})
}

package pgstore

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"
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
	const least, most = 2750 * time.Millisecond, 3 * time.Second
	inBubble(t, func(t *testing.T, l *limiter, _ context.CancelFunc, ctx context.Context) {
		var calls sync.WaitGroup
		for range 100 { // for longer than a context is shared
			calls.Go(func() {
				begin := time.Now()
				callCtx, cancel := l.limit(ctx)
				defer cancel()
				deadline, ok := callCtx.Deadline()
				<-callCtx.Done()
				if took := time.Since(begin); took < least || took > most || !ok || !time.Now().Equal(deadline) {
					t.Errorf("a call ended after %v, want %v to %v; its deadline is %v, %v", took, least, most, deadline, ok)
				}
			})
			time.Sleep(37 * time.Millisecond)
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

// A store that is open for years must not keep the contexts of calls. The runtime keeps some timers
// for a while after they were stopped.
func TestNothingKeepsTheContextsOfCalls(t *testing.T) {
	life, end := context.WithCancel(context.Background())
	defer end()
	l := &limiter{life: life}
	endless, cancelCaller := context.WithCancel(context.Background())
	defer cancelCaller()
	for name, ctx := range map[string]context.Context{"a context without an end": context.Background(), "a context with an end": endless} {
		values := make([]weak.Pointer[[1024]byte], 200)
		for i := range values {
			value := new([1024]byte)
			values[i] = weak.Make(value)
			_, cancel := l.limit(context.WithValue(ctx, key{}, value))
			cancel()
		}
		runtime.GC()
		kept := 0
		for _, value := range values {
			if value.Value() != nil {
				kept++
			}
		}
		if kept > len(values)/2 {
			t.Errorf("%s: %d of %d are kept", name, kept, len(values))
		}
	}
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

// Package context starts a goroutine for a context that it does not know. Goroutines of other tests
// may begin and end meanwhile, so this test counts the additional ones for many contexts.
func TestTheContextOfACallNeedsNoGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T, l *limiter, _ context.CancelFunc, ctx context.Context) {
		const calls = 1000
		before := runtime.NumGoroutine()
		for range calls {
			callCtx, cancel := l.limit(ctx)
			defer cancel()
			stop := context.AfterFunc(callCtx, func() {})
			defer stop()
		}
		if n := runtime.NumGoroutine() - before; n > calls/2 {
			t.Errorf("%d goroutines for %d calls", n, calls)
		}
	})
}

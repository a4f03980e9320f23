package pgstore

import (
	"context"
	"sync"
	"time"
)

const (
	// callTimeout bounds a call.
	callTimeout = 3 * time.Second

	// sharedFor is how long calls share a context after the first of them began.
	sharedFor = callTimeout / 12
)

// A limiter makes the contexts of calls, which end with Close or when callTimeout is over. A
// timer for each call would be one of the main costs of a call. Instead, calls that begin at about
// the same time share a context, so some of them end up to sharedFor earlier.
type limiter struct {
	life context.Context // ends with Close

	mu     sync.Mutex
	shared context.Context
	end    context.CancelFunc // of shared; not called, because it ends by itself
	until  time.Time          // until when calls may begin to use shared
}

// limit returns a context with the values of ctx that ends with ctx, with Close, or when
// callTimeout is over.
func (l *limiter) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	shared := l.current()
	if ctx.Done() == nil {
		return callContext{shared, ctx}, func() {}
	}
	callCtx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(shared, cancel)
	return callCtx, func() {
		stop()
		cancel()
	}
}

func (l *limiter) current() context.Context {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared == nil || !now.Before(l.until) {
		l.shared, l.end = context.WithTimeout(l.life, callTimeout)
		l.until = now.Add(sharedFor)
	}
	return l.shared
}

// A callContext ends with one context and has the values of another.
type callContext struct {
	context.Context
	values context.Context
}

// Value returns a value of the caller's context. Package context looks for a value in contexts that
// end, and needs a goroutine if it does not find it.
func (c callContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.values.Value(key)
}

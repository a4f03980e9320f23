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
// context of its own, with a timer, costs a call several allocations. Calls whose callers cannot
// give up need none: those that begin at about the same time share a context, and so have up to
// sharedFor less time. Unlock makes such calls, whatever the context of the lock was.
type limiter struct {
	life context.Context // ends with Close

	mu     sync.Mutex
	shared context.Context
	end    context.CancelFunc // of shared; not called, because it ends by itself
	until  time.Time          // until when calls may begin to use shared
}

// limit returns a context with the values of ctx that ends with ctx, with Close, or when
// callTimeout is over. It always has a deadline: the pool does not look at the end of a context
// without one while it tests an idle connection.
func (l *limiter) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return callContext{l.current(), ctx}, func() {}
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	stop := context.AfterFunc(l.life, cancel)
	return callCtx, func() {
		stop()
		cancel()
	}
}

// current returns the context that calls share at the moment.
func (l *limiter) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.shared == nil || !now.Before(l.until) {
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

// Value returns a value of the caller's context. The context that ends is asked first, because
// package context recognizes its own contexts by a value, and starts a goroutine for all others.
func (c callContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.values.Value(key)
}

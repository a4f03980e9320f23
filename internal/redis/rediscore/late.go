package rediscore

import (
	"context"
	"sync"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// lateCalls holds the requests of cancelled calls of Acquire that are still under way. Such a request may not
// have been written yet, or the client library may send it again through another connection. A Leave that is
// sent at once could overtake it, and the request would then take the name. So Leave waits until the request
// has ended, and so does a repeated Acquire, which is followed by a Release. It ends with a reply, or when the
// connection is closed: see Requests that arrive late in the documentation of package redisstore.
type lateCalls struct {
	mu    sync.Mutex
	calls map[store.ID]<-chan struct{} // closed when the request has ended
}

// add records a request of an identity, which ends when done is closed.
func (l *lateCalls) add(id store.ID, done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[id] = done
	go func() {
		<-done
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.calls[id] == done {
			delete(l.calls, id)
		}
	}()
}

// wait waits until no request of an identity is under way.
func (l *lateCalls) wait(ctx context.Context, id store.ID) error {
	l.mu.Lock()
	done := l.calls[id]
	l.mu.Unlock()
	return wake.Wait(ctx, done, nil, nil)
}

// A detached context does not end with the call that it belongs to.
type detached struct {
	context.Context
	caller context.Context
}

// Caller returns the context of the caller that waits for a call of [Conn], and whether the call goes on when that
// context ends.
func Caller(ctx context.Context) (caller context.Context, goesOn bool) {
	if d, ok := ctx.(detached); ok {
		return d.caller, true
	}
	return ctx, false
}

// send makes a call. If ctx ends, a request that takes something for an identity continues, because its reply
// shows that it has no effect any more.
func (s *Store) send(ctx context.Context, call Call) Reply {
	if call.taker.IsZero() || ctx.Done() == nil {
		return s.conn.Run(ctx, call)[0]
	}
	var r Reply
	done, work := make(chan struct{}), detached{s.calls.Work, ctx}
	go func() {
		r = s.conn.Run(work, call)[0]
		close(done)
	}()
	select {
	case <-done:
		return r
	case <-ctx.Done():
		s.late.add(call.taker, done)
		return Reply{Err: ctx.Err()}
	}
}

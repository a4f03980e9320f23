package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/store"
)

// leaseContext is a context that ends with a lease and carries it.
type leaseContext struct {
	context.Context // ends with the lease or with parent
	parent          context.Context
	lease           *Lease
	cancel          context.CancelCauseFunc
}

// leaseKey finds the innermost leaseContext.
type leaseKey struct{}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Context returns a context that ends with parent or with the lease, with a cause that
// matches ErrLost after a loss. It carries the lease: TokenFrom finds the token, and
// locking the same name again under it is found out.
func (l *Lease) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	lc := &leaseContext{Context: ctx, parent: parent, lease: l, cancel: cancel}
	r := l.root
	r.mu.Lock()
	over := l.overLocked()
	if over == nil {
		if l.contexts == nil {
			l.contexts = make(map[*leaseContext]struct{})
		}
		l.contexts[lc] = struct{}{}
	}
	r.mu.Unlock()
	if over != nil {
		cancel(over)
		return lc
	}
	if parent.Done() != nil {
		// A long lease must not remember the context of every short call made under it.
		context.AfterFunc(ctx, func() {
			r.mu.Lock()
			delete(l.contexts, lc)
			r.mu.Unlock()
		})
	}
	return lc
}

// TokenFrom returns the fencing token of the innermost lease that ctx was made from, 0 if
// there is none.
func TokenFrom(ctx context.Context) int64 {
	if l := LeaseFrom(ctx); l != nil {
		return l.token
	}
	return 0
}

// LeaseFrom returns the innermost lease that ctx was made from, nil if there is none. Under
// Do, Once and Campaign it is the way to Deadline and Renew.
func LeaseFrom(ctx context.Context) *Lease {
	if lc, ok := ctx.Value(leaseKey{}).(*leaseContext); ok {
		return lc.lease
	}
	return nil
}

// holds returns the live lease of this client on that name that ctx was made from, nil if
// there is none.
func (c *Client) holds(ctx context.Context, name string) *Lease {
	for {
		lc, ok := ctx.Value(leaseKey{}).(*leaseContext)
		if !ok {
			return nil
		}
		if l := lc.lease; l.g.c == c && l.g.name == name && l.Err() == nil {
			return l
		}
		ctx = lc.parent
	}
}

// again is a lock of a name that the caller's context holds already, as l.
func (l *Lease) again(cl *call) (*Lease, error) {
	mode := l.Mode()
	covers := mode == store.Exclusive || mode == cl.req.Mode && cl.req.Weight <= l.g.weight
	switch {
	case !cl.reentrant:
		return nil, fail(cl.op, cl.name, fmt.Errorf("%w: the context holds it already, with token %d: pass the lease on, or use Reentrant", ErrWouldDeadlock, l.token))
	case !covers:
		return nil, fail(cl.op, cl.name, fmt.Errorf("%w: the context holds it already as %s, which does not cover %s: unlock it first", ErrWouldDeadlock, describe(mode, l.g.weight), describe(cl.req.Mode, cl.req.Weight)))
	}
	r := l.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, fail(cl.op, cl.name, r.err)
	}
	return r.shareLocked(), nil
}

// unlinkLocked forgets a lease that shared the grant of a root lease, so that a long one does
// not remember every short one.
func (l *Lease) unlinkLocked(handle *Lease) {
	for at := &l.inner; *at != nil; at = &(*at).inner {
		if *at == handle {
			*at = handle.inner
			return
		}
	}
}

// shareLocked makes one more lease on the grant of a root lease.
func (l *Lease) shareLocked() *Lease {
	handle := &Lease{g: l.g, root: l, token: l.token, since: l.since, inner: l.inner}
	l.handles++
	l.inner = handle
	return handle
}

func describe(mode store.Mode, weight int) string {
	if mode == store.Permits {
		return fmt.Sprintf("%d permits", weight)
	}
	return mode.String()
}

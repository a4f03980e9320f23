package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/store"
)

// A leaseContext is a context that ends with a lease and carries it.
type leaseContext struct {
	context.Context // ends with the lease or with parent
	parent          context.Context
	lease           *Lease
}

// A contextEnd ends a leaseContext. The lease refers only to the contextEnd, so that its
// contexts do not keep the Lease from being garbage collected.
type contextEnd struct{ cancel context.CancelCauseFunc }

// leaseKey is the context key of the innermost leaseContext.
type leaseKey struct{}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Context returns a context that ends with parent or with the lease, with a cause that
// matches ErrLost after a loss. It carries the lease: TokenFrom finds the token, and locking
// the same name again under it returns ErrWouldDeadlock. A nil parent is context.Background().
func (h *Lease) Context(parent context.Context) context.Context {
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancelCause(parent)
	end := &contextEnd{cancel}
	l := h.l
	r := l.root
	r.mu.Lock()
	over := l.overLocked()
	if over == nil {
		if l.contexts == nil {
			l.contexts = make(map[*contextEnd]struct{})
		}
		l.contexts[end] = struct{}{}
	}
	r.mu.Unlock()
	if over != nil {
		cancel(over)
	} else if parent.Done() != nil {
		// A long lease must not collect the contexts of all short calls made under it.
		context.AfterFunc(ctx, func() {
			r.mu.Lock()
			delete(l.contexts, end)
			r.mu.Unlock()
		})
	}
	return &leaseContext{Context: ctx, parent: parent, lease: h}
}

// TokenFrom returns the fencing token of the innermost lease that ctx was made from, or 0 if
// there is none.
func TokenFrom(ctx context.Context) int64 {
	if l := LeaseFrom(ctx); l != nil {
		return l.Token()
	}
	return 0
}

// LeaseFrom returns the innermost lease that ctx was made from, or nil if there is none. Work
// that runs under Do, Once or Campaign can call it to get the lease, for example for Deadline
// or Renew.
func LeaseFrom(ctx context.Context) *Lease {
	if ctx == nil {
		return nil
	}
	if lc, ok := ctx.Value(leaseKey{}).(*leaseContext); ok {
		return lc.lease
	}
	return nil
}

// holds returns the live lease of this client on the name from which ctx was made, or nil if
// there is none.
func (c *Client) holds(ctx context.Context, name string) *lease {
	for {
		lc, ok := ctx.Value(leaseKey{}).(*leaseContext)
		if !ok {
			return nil
		}
		if l := lc.lease.l; l.g.c == c && l.g.Name == name && l.Err() == nil {
			return l
		}
		ctx = lc.parent
	}
}

// again makes one more lease on a name that the caller's context already holds through the lease
// l.
func (l *lease) again(cl *call) (*lease, error) {
	r := l.root
	r.mu.Lock() // also keeps Downgrade from changing the mode
	defer r.mu.Unlock()
	mode := l.mode()
	covers := mode == store.Exclusive || mode == cl.Request.Mode && cl.Request.Weight <= l.g.weight
	switch {
	case !cl.reentrant:
		return nil, fail(cl.op, cl.name, fmt.Errorf("%w: the context holds it already, with token %d: pass the lease on, or use Reentrant", ErrWouldDeadlock, l.token))
	case !covers:
		return nil, fail(cl.op, cl.name, fmt.Errorf("%w: the context holds it already as %s, which does not cover %s: unlock it first", ErrWouldDeadlock, describe(mode, l.g.weight), describe(cl.Request.Mode, cl.Request.Weight)))
	}
	if r.ended {
		return nil, fail(cl.op, cl.name, r.err)
	}
	return r.shareLocked(), nil
}

// unlinkLocked removes a lease from the list of leases that share the grant of a root lease.
// Otherwise a long root lease would collect all the short ones.
func (l *lease) unlinkLocked(handle *lease) {
	for at := &l.inner; *at != nil; at = &(*at).inner {
		if *at == handle {
			*at = handle.inner
			return
		}
	}
}

// shareLocked makes one more lease on the grant of a root lease.
func (l *lease) shareLocked() *lease {
	handle := &lease{g: l.g, root: l, token: l.token, since: l.since, inner: l.inner}
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

package holdfast

import "context"

// A leaseContext is a context that ends with a lease and carries it.
type leaseContext struct {
	context.Context                 // the parent, for its values and its deadline
	end             context.Context // ends with the lease or with the parent
	lease           *Lease
}

type leaseKey struct{}

func (c *leaseContext) Done() <-chan struct{} { return c.end.Done() }
func (c *leaseContext) Err() error            { return c.end.Err() }

func (c *leaseContext) Value(key any) any {
	switch key {
	case leaseKey{}:
		return c
	case causeKey:
		return c.end.Value(key)
	}
	return c.Context.Value(key)
}

// causeKey is the key with which package context asks a context for its nearest ancestor that can
// be cancelled. That ancestor knows the cause and the contexts to cancel with it. If package context
// stopped to ask, these contexts would still end, but with the cause of the parent.
var causeKey = func() any {
	var asked keyRecorder
	context.Cause(&asked)
	return asked.key
}()

// A keyRecorder is a context that records the key of the last value that it was asked for.
type keyRecorder struct {
	context.Context
	key any
}

func (r *keyRecorder) Err() error        { return context.Canceled }
func (r *keyRecorder) Value(key any) any { r.key = key; return nil }

// A contextEnd ends the contexts that were made from a lease and from parents with the same key. It
// does not refer to the Lease, so that the Lease can be garbage collected.
type contextEnd struct {
	context.Context
	cancel context.CancelCauseFunc
}

// A contextKey is equal for parents that end at the same moment with the same cause.
type contextKey struct {
	done  <-chan struct{} // of the parents
	known bool            // package context can find their nearest ancestor that can be cancelled
	last  bool            // the channel of the context is what Done returns
}

// Context returns a context that ends with parent or with the lease, with a cause that
// matches ErrLost after a loss. It carries the lease: TokenFrom finds the token, and locking
// the same name again under it returns ErrWouldDeadlock. A nil parent is context.Background().
func (l *Lease) Context(parent context.Context) context.Context {
	if parent == nil {
		parent = context.Background()
	}
	key, source := contextKey{done: parent.Done()}, parent
	// The ancestor knows the cause, like parent, and does not keep the values of parent.
	if ancestor, ok := parent.Value(causeKey).(context.Context); ok && ancestor.Done() == key.done {
		key.known, source = true, ancestor
	}
	return &leaseContext{Context: parent, end: l.p.contextEnd(source, key), lease: l}
}

// doneContext returns a context whose channel Done returns. It ends with parent, or as the last one with the lease.
func (p *part) doneContext(parent context.Context) context.Context {
	return p.contextEnd(parent, contextKey{done: parent.Done(), last: true})
}

// contextEnd returns a context that ends with parent or with the lease. Calls with the same key
// share one, so that a long lease does not collect one for each call.
func (p *part) contextEnd(parent context.Context, key contextKey) context.Context {
	h := p.h
	h.mu.Lock()
	end, found := p.contexts[key]
	h.mu.Unlock()
	if found {
		return end.Context
	}
	ends := parent.Done() != nil
	if !ends {
		parent = context.Background() // do not keep its values
	}
	// No mutex is locked while package context may call methods of a parent that the program made.
	var made contextEnd
	made.Context, made.cancel = context.WithCancelCause(parent)
	h.mu.Lock()
	over := p.endedByLocked()
	end, found = p.contexts[key]
	if over == nil && !found {
		if p.contexts == nil {
			p.contexts = make(map[contextKey]contextEnd)
		}
		p.contexts[key] = made
	}
	h.mu.Unlock()
	switch {
	case over != nil:
		made.cancel(over)
	case found:
		made.cancel(nil)
		return end.Context
	case ends:
		context.AfterFunc(made.Context, func() {
			h.mu.Lock()
			delete(p.contexts, key)
			h.mu.Unlock()
		})
	}
	return made.Context
}

// TokenFrom returns the fencing token of the innermost lease from which ctx was made, or 0.
func TokenFrom(ctx context.Context) int64 {
	if l := LeaseFrom(ctx); l != nil {
		return l.Token()
	}
	return 0
}

// LeaseFrom returns the innermost lease from which ctx was made, or nil. Work that runs under Do,
// Once or Campaign can call it, for example for Deadline or Renew.
func LeaseFrom(ctx context.Context) *Lease {
	if ctx == nil {
		return nil
	}
	if lc, ok := ctx.Value(leaseKey{}).(*leaseContext); ok {
		return lc.lease
	}
	return nil
}

// holds returns the live hold of this client on the name from which ctx was made, or nil.
func (c *Client) holds(ctx context.Context, name string) *hold {
	for {
		lc, ok := ctx.Value(leaseKey{}).(*leaseContext)
		if !ok {
			return nil
		}
		if p := lc.lease.p; p.h.c == c && p.h.g.Name == name && p.err() == nil {
			return p.h
		}
		ctx = lc.Context
	}
}

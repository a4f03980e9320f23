package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A LeaseSet is several locks held together.
type LeaseSet struct {
	leases []*Lease // in order of their names
}

// LockAll takes all the names or none. It takes them in sorted order, so that two calls that share
// names do not deadlock. A name that occurs twice is locked once.
//
// It returns the error of the first name that it could not lock, after it has released the
// others, and ErrLost if one of the locks was lost during the wait for another.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...CallOption) (*LeaseSet, error) {
	const op = "lock all"
	if len(names) == 0 {
		return nil, fail(op, "", fmt.Errorf("%w: there are no names", ErrInvalid))
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	for i, name := range sorted { // check all names before the first one is locked
		cl := newCall(op, name, store.Exclusive)
		if err := c.prepare(ctx, &cl, opts); err != nil {
			return nil, err
		}
		if i == 0 && cl.wait > 0 { // the limit is for all names together
			limited, cancel := context.WithTimeoutCause(ctx, cl.wait, &waitedError{cl.wait})
			defer cancel()
			ctx = limited
		}
	}
	var minHold time.Duration
	set := &LeaseSet{leases: make([]*Lease, 0, len(sorted))}
	all := false
	defer func() { // even if a strategy panics
		if !all {
			set.Unlock(ctx)
		}
	}()
	for _, name := range sorted {
		cl := newCall(op, name, store.Exclusive)
		cl.inSet = true
		lease, err := c.take(ctx, &cl, opts)
		if err == nil {
			set.leases = append(set.leases, lease)
			minHold = cl.minHold
			err = set.Err() // an earlier lease may have been lost during a long wait
		}
		if err != nil {
			return nil, err
		}
	}
	if minHold > 0 {
		for _, lease := range set.leases {
			lease.p.setMinHold(minHold)
		}
	}
	all = true
	return set, nil
}

// Leases returns the leases in order of their names.
func (s *LeaseSet) Leases() []*Lease { return slices.Clone(s.leases) }

// Lease returns the lease of a name, or nil if the name is not in the set.
func (s *LeaseSet) Lease(name string) *Lease {
	for _, l := range s.leases {
		if l.Name() == name {
			return l
		}
	}
	return nil
}

// Done returns a channel that is closed when the first of the leases ends.
func (s *LeaseSet) Done() <-chan struct{} {
	ctx := context.Background()
	for _, l := range s.leases {
		ctx = l.p.doneContext(ctx)
	}
	return ctx.Done()
}

// Err returns nil while all leases are held, or the error of the first, by name, that has ended.
func (s *LeaseSet) Err() error {
	for _, l := range s.leases {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Context returns a context that ends with parent or the first lease to end, and carries all.
func (s *LeaseSet) Context(parent context.Context) context.Context {
	for _, l := range s.leases {
		parent = l.Context(parent)
	}
	return parent
}

// Renew extends all leases by their TTL from now. It returns the errors of all that failed.
func (s *LeaseSet) Renew(ctx context.Context) error {
	return s.each(func(l *Lease) error { return l.Renew(ctx) })
}

// Unlock unlocks all leases, even if ctx has ended. It returns the errors of all that failed.
func (s *LeaseSet) Unlock(ctx context.Context) error {
	return s.each(func(l *Lease) error { return l.Unlock(ctx) })
}

func (s *LeaseSet) each(do func(*Lease) error) error {
	var mu sync.Mutex
	var errs []error
	inParallel(s.leases, func(l *Lease) { // a store that hangs must not take its time for each
		err := do(l)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	return errors.Join(errs...)
}

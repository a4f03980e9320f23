package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/store"
)

// A call holds the parameters of one acquiring call of a user.
type call struct {
	localqueue.Call // the request to the store, and the data that the local queue needs

	op   string // for errors: "lock", "try lock", …
	name string // as the user wrote it, without the client's prefix

	need      store.Features
	wait      time.Duration
	retry     Strategy // nil for the default
	maxHold   time.Duration
	minHold   time.Duration
	keep      time.Duration // of Once
	noRenew   bool
	reentrant bool
	inSet     bool // one of several names; MinHold starts when all are taken
	reported  bool // reportWaiting was called, so the call has to wait
	standby   bool // of a Campaign

	waitSet, retrySet                bool
	retryErr, maxHoldErr, minHoldErr error // of bad options
}

func newCall(op, name string, mode store.Mode) call {
	return call{op: op, name: name, Call: localqueue.Call{Request: store.Request{Mode: mode, Weight: 1}}}
}

// prepare fills a call from its options and checks it before the store is touched.
func (c *Client) prepare(ctx context.Context, cl *call, opts []CallOption) error {
	cl.Request.TTL = c.set.ttl
	if len(opts) > 0 {
		try := cl.Try
		*cl = apply(*cl, opts)
		if try && (cl.waitSet || cl.retrySet) {
			return fail(cl.op, cl.name, fmt.Errorf("%w: Wait and Retry do not apply to Try calls; use the waiting call with Wait(limit)", ErrInvalid))
		}
	}
	cl.Request.Name = c.set.prefix + cl.name
	cl.Request.Tokens = 1
	if err := c.checkCall(ctx, cl); err != nil {
		return fail(cl.op, cl.name, err)
	}
	cl.Request.Owner = c.set.owner // was checked by New
	if cl.retry == nil {
		cl.Patience = patience
	}
	cl.Own = cl.noRenew || cl.maxHold > 0
	return nil
}

// apply is a separate function so that calls without options do not move to the heap.
func apply(cl call, opts []CallOption) call {
	for _, opt := range opts {
		if opt != nil {
			opt(&cl)
		}
	}
	return cl
}

func (c *Client) checkCall(ctx context.Context, cl *call) error {
	switch {
	case ctx == nil:
		return errNilContext
	case cl.name == "": // with a prefix the full name would not be empty
		return store.CheckName("")
	case cl.wait < 0:
		return fmt.Errorf("%w: Wait(%v): want 0 for a single attempt, or more", ErrInvalid, cl.wait)
	case cl.Once && cl.reentrant:
		return fmt.Errorf("%w: Reentrant cannot be combined with Once: a name that an outer lease holds cannot be closed as done", ErrInvalid)
	case cl.maxHoldErr != nil:
		return cl.maxHoldErr
	case cl.minHoldErr != nil:
		return cl.minHoldErr
	case cl.maxHold > 0 && cl.minHold > cl.maxHold:
		return fmt.Errorf("%w: MinHold(%v) is longer than MaxHold(%v)", ErrInvalid, cl.minHold, cl.maxHold)
	case cl.Once && cl.minHold > cl.keep: // the name is closed as done, and opens after keep
		return fmt.Errorf("%w: MinHold(%v) is longer than the %v for which Once keeps the name closed", ErrInvalid, cl.minHold, cl.keep)
	case cl.retryErr != nil:
		return cl.retryErr
	}
	if cl.minHold > 0 || cl.Once {
		cl.need |= store.FeatureKeep
	}
	if missing := cl.need &^ c.caps.Features; missing != 0 {
		return fmt.Errorf("%w: the %s store has no %s", ErrUnsupported, c.caps.Store, missing)
	}
	return c.caps.Check(&cl.Request)
}

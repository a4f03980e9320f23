package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A call is what one acquiring call of a user asks for.
type call struct {
	op   string        // for errors: "lock", "try lock", …
	name string        // as the user wrote it, without the client's prefix
	req  store.Request // what goes to the store

	need      store.Features
	wait      time.Duration
	retry     Strategy
	maxHold   time.Duration
	atLeast   time.Duration
	try       bool // one attempt
	noRenew   bool
	reentrant bool
	once      bool // a record that says done ends the wait
	inSet     bool // one of several names: AtLeast counts once all are taken

	waitSet, retrySet, maxHoldSet, atLeastSet, limitSet bool

	inquiry // how the asking goes
}

// minimum is the AtLeast of a lease that is taken for this call.
func (cl *call) minimum() time.Duration {
	if cl.inSet {
		return 0
	}
	return cl.atLeast
}

// lockCall is a call for the lock alone.
func lockCall(op, name string) call {
	return call{op: op, name: name, req: store.Request{Mode: store.Exclusive, Weight: 1}}
}

// prepare fills a call from its options and checks it, so that nothing bad reaches the
// store.
func (c *Client) prepare(ctx context.Context, cl *call, opts []CallOption) error {
	cl.req.TTL = c.set.ttl
	if len(opts) > 0 {
		try := cl.try
		*cl = apply(*cl, opts)
		if try && (cl.waitSet || cl.retrySet) {
			return fail(cl.op, cl.name, fmt.Errorf("%w: a single attempt takes neither Wait nor Retry: use the waiting call with Wait(limit)", ErrInvalid))
		}
	}
	cl.req.Name = cl.name
	if c.set.prefix != "" {
		cl.req.Name = c.set.prefix + cl.name
	}
	cl.req.Tokens = 1
	if err := c.checkCall(ctx, cl); err != nil {
		return fail(cl.op, cl.name, err)
	}
	cl.req.Owner = c.set.owner // was checked by New
	return nil
}

// apply is a function of its own because its parameter goes to the heap, which calls
// without options are spared.
func apply(cl call, opts []CallOption) call {
	for _, opt := range opts {
		if opt != nil {
			opt(&cl)
		}
	}
	return cl
}

func (c *Client) checkCall(ctx context.Context, cl *call) error {
	if ctx == nil {
		return errNilContext
	}
	if c.bad != nil {
		return c.bad
	}
	if cl.name == "" { // with a prefix the full name would not be empty
		return store.CheckName("")
	}
	if !cl.plain() {
		if err := c.checkOptions(cl); err != nil {
			return err
		}
	}
	return c.caps.Check(&cl.req)
}

// plain reports that no option needs a check.
func (cl *call) plain() bool {
	return !cl.waitSet && !cl.retrySet && !cl.maxHoldSet && !cl.atLeastSet && !cl.limitSet && !cl.once && cl.need == 0
}

func (c *Client) checkOptions(cl *call) error {
	switch {
	case cl.limitSet && cl.req.Mode != store.Permits:
		return fmt.Errorf("%w: Limit goes with Acquire and TryAcquire only", ErrInvalid)
	case cl.waitSet && cl.wait < 0:
		return fmt.Errorf("%w: Wait(%v): want 0 for a single attempt, or more", ErrInvalid, cl.wait)
	case cl.once && cl.reentrant:
		return fmt.Errorf("%w: Reentrant does not go with Once: what an outer lease holds cannot be noted as done", ErrInvalid)
	}
	if cl.maxHoldSet {
		if err := store.CheckTime("MaxHold", cl.maxHold); err != nil {
			return err
		}
	}
	if cl.atLeastSet {
		if err := store.CheckTime("AtLeast", cl.atLeast); err != nil {
			return err
		}
	}
	if cl.maxHoldSet && cl.atLeast > cl.maxHold {
		return fmt.Errorf("%w: AtLeast(%v) is longer than MaxHold(%v)", ErrInvalid, cl.atLeast, cl.maxHold)
	}
	if cl.retrySet {
		if err := checkStrategy(cl.retry); err != nil {
			return err
		}
	}
	if cl.atLeastSet || cl.once {
		cl.need |= store.FeatureKeep
	}
	if missing := cl.need &^ c.caps.Features; missing != 0 {
		return fmt.Errorf("%w: the %s store has no %s", ErrUnsupported, c.caps.Store, missing)
	}
	return nil
}

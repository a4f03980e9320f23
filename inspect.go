package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

// List yields all names in the namespace of this client that start with prefix and are held,
// closed or waited for. An error ends the listing.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := store.CheckText("prefix", c.set.prefix+prefix); err != nil {
			yield(Info{}, fail("list", prefix, err))
			return
		}
		var cursor string
		for {
			page, err := c.list(ctx, "list", prefix, store.Query{Prefix: c.set.prefix + prefix, Cursor: cursor})
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, info := range page.Locks {
				info.Name = strings.TrimPrefix(info.Name, c.set.prefix)
				if !yield(info, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

// Inspect returns the holders of a name and its waiters. Both are empty if the name is free.
func (c *Client) Inspect(ctx context.Context, name string) (Info, error) {
	return c.inspect(ctx, "inspect", name)
}

func (c *Client) inspect(ctx context.Context, op, name string) (Info, error) {
	if err := c.checkName(op, name); err != nil {
		return Info{}, err
	}
	page, err := c.list(ctx, op, name, store.Query{Name: c.set.prefix + name})
	if err != nil {
		return Info{}, err
	}
	var info Info
	if len(page.Locks) > 0 {
		info = page.Locks[0]
	}
	info.Name = name
	return info, nil
}

// Break ends the grant with that ID, as shown by a listing, by force. It ends no other grant. The
// holder learns of it at its next renewal and may still be working. The next holder's token is
// higher, so a resource that checks tokens is safe. Break also ends what Once or MinHold leave to keep a
// name closed. It returns ErrNotHeld if that grant no longer holds the name.
func (c *Client) Break(ctx context.Context, name string, id ID) error {
	const op = "break"
	if err := c.checkName(op, name); err != nil {
		return err
	}
	if id.IsZero() {
		return fail(op, name, fmt.Errorf("%w: missing ID; use one from Inspect", ErrInvalid))
	}
	return c.breakGrant(ctx, op, name, id)
}

// Forget removes the record that Once left under a name, so that the next Once runs its function
// again. It returns ErrNotHeld if there is no such record, and ErrHeld if the function is running.
//
// Forget opens the name for work that may be in progress elsewhere: a call of Once that was told
// ErrDone may not have acted on it yet. A program that removes what Once made, such as an account,
// calls Forget afterwards, under the lock that guards the account.
func (c *Client) Forget(ctx context.Context, name string) error {
	const op = "forget"
	info, err := c.inspect(ctx, op, name)
	switch {
	case err != nil:
		return err
	case len(info.Holders) == 0:
		return fail(op, name, fmt.Errorf("%w: no record that it was done", ErrNotHeld))
	case info.Holders[0].State != store.Done:
		return fail(op, name, &HeldError{Name: name, Holders: info.Holders})
	}
	return c.breakGrant(ctx, op, name, info.Holders[0].ID)
}

func (c *Client) breakGrant(ctx context.Context, op, name string, id ID) error {
	// A waiting call knows the broken grant until it wakes up. No other call may be refused because of it.
	defer c.queue.ForgetRefusal(c.set.prefix + name)
	return c.manage(ctx, op, name, func(ctx context.Context) error {
		return c.store.Break(ctx, c.set.prefix+name, id)
	})
}

func (c *Client) checkName(op, name string) error {
	full := c.set.prefix + name
	if name == "" { // then the prefix alone is no name
		full = ""
	}
	return failIf(op, name, store.CheckName(full))
}

func (c *Client) list(ctx context.Context, op, name string, q store.Query) (page store.Page, err error) {
	err = c.manage(ctx, op, name, func(ctx context.Context) error {
		page, err = c.store.List(ctx, q)
		return err
	})
	return page, err
}

// manage makes one call of List or Break, with the checks and errors that they share.
func (c *Client) manage(ctx context.Context, op, name string, do func(context.Context) error) error {
	if ctx == nil {
		return fail(op, name, errNilContext)
	}
	if !c.caps.Features.Has(store.FeatureList) {
		return fail(op, name, fmt.Errorf("%w: the %s store has no %s", ErrUnsupported, c.caps.Store, store.FeatureList))
	}
	if !c.life.Enter() {
		return fail(op, name, ErrClosed)
	}
	defer c.life.Exit()
	err := do(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fail(op, name, context.Cause(ctx))
	case permanent(err) || errors.Is(err, store.ErrNotHeld):
		return fail(op, name, err)
	}
	return fail(op, name, unavailable("", err))
}

package quorum_test

import (
	"context"
	"slices"

	"github.com/holdfast-lock/holdfast/store"
)

// A wire is a store behind something that makes its calls, disturbs them, or loses them. The calls do not
// depend on the contexts of their callers.
type wire struct {
	store.Store
	send func(ctx context.Context, call string, do func(s store.Store) error) error
}

// over makes a call through a wire. It may be executed when its caller has given up.
func over[T any](ctx context.Context, w wire, call string, do func(ctx context.Context, s store.Store) (T, error)) (v T, err error) {
	answer := new(T)
	err = w.send(ctx, call, func(s store.Store) (err error) {
		*answer, err = do(context.WithoutCancel(ctx), s)
		return err
	})
	if err == nil {
		v = *answer
	}
	return v, err
}

// end makes a call that returns no more than an error.
func (w wire) end(ctx context.Context, call string, do func(ctx context.Context, s store.Store) error) error {
	return w.send(ctx, call, func(s store.Store) error { return do(context.WithoutCancel(ctx), s) })
}

func (w wire) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	return over(ctx, w, "Acquire", func(ctx context.Context, s store.Store) (store.Answer, error) { return s.Acquire(ctx, req) })
}

func (w wire) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	grants = slices.Clone(grants)
	return over(ctx, w, "Renew", func(ctx context.Context, s store.Store) ([]store.Renewed, error) { return s.Renew(ctx, grants) })
}

func (w wire) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	return w.end(ctx, "Release", func(ctx context.Context, s store.Store) error { return s.Release(ctx, name, id, keep) })
}

func (w wire) Leave(ctx context.Context, name string, id store.ID) error {
	return w.end(ctx, "Leave", func(ctx context.Context, s store.Store) error { return s.Leave(ctx, name, id) })
}

func (w wire) Break(ctx context.Context, name string, id store.ID) error {
	return w.end(ctx, "Break", func(ctx context.Context, s store.Store) error { return s.Break(ctx, name, id) })
}

// List is called Lookup if it is about one name.
func (w wire) List(ctx context.Context, q store.Query) (store.Page, error) {
	call := "List"
	if q.Name != "" {
		call = "Lookup"
	}
	return over(ctx, w, call, func(ctx context.Context, s store.Store) (store.Page, error) { return s.List(ctx, q) })
}

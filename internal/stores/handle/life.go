// Package handle has what the handles of all stores need to begin, to keep calls out after Close, and to end.
package handle

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/internal/core/lifetime"
	"github.com/holdfast-lock/holdfast/store"
)

// A Life is the lifetime of a handle.
type Life struct {
	lifetime.Lifetime
	ErrClosed error // of calls after Close
}

// Begin starts a lifetime. The name of the store is part of ErrClosed.
func (l *Life) Begin(name string) {
	l.Lifetime.Begin()
	l.ErrClosed = fmt.Errorf("%s: %w", name, store.ErrClosed)
}

// EnterCall begins a call. If it returns nil, the caller must call Exit.
func (l *Life) EnterCall(ctx context.Context) error {
	if !l.Enter() {
		return l.ErrClosed
	}
	err := ctx.Err()
	if err != nil {
		l.Exit()
	}
	return err
}

// Usable returns an error if the handle is closed, or if ctx has ended.
func (l *Life) Usable(ctx context.Context) error {
	if l.Closing.Err() != nil {
		return l.ErrClosed
	}
	return ctx.Err()
}

// Opened returns a store as an interface, which is nil, and does not contain a nil pointer, after an error.
func Opened[S store.Store](s S, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

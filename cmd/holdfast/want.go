package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/store"
)

// A want is which lock to take and how: what run and acquire have in common.
type want struct {
	store  storeFlag
	name   string
	try    bool
	wait   time.Duration
	ttl    time.Duration
	shared bool
	slots  int
	meta   string

	waitSet bool
	more    []holdfast.CallOption
}

func (w *want) flags(ttl string) []*cli.Flag {
	return []*cli.Flag{
		w.store.flag(),
		cli.Bool("nonblock", 'n', &w.try, "do not wait if the lock is held"),
		cli.Duration("wait", 'w', &w.wait, &w.waitSet, "wait at most so long for the lock, such as 30s or 1.5 (seconds); 0 does not wait; default: for ever"),
		cli.Duration("ttl", 0, &w.ttl, nil, ttl),
		cli.String("meta", 0, "TEXT", &w.meta, "tell whoever asks who holds the lock"),
	}
}

// modeFlags are for locks that several can hold.
func (w *want) modeFlags() []*cli.Flag {
	return []*cli.Flag{
		cli.Bool("shared", 's', &w.shared, "hold the lock together with others who say --shared, as readers do"),
		cli.Int("slots", 0, "N", &w.slots, nil, 1, store.MaxLimit, "at most N hold the lock at a time; all must give the same N"),
	}
}

// check finds the mistakes that can be seen before anything is touched.
func (w *want) check() error {
	switch {
	case w.try && w.waitSet && w.wait > 0:
		return errors.New("-n does not wait and --wait does; give one of them")
	case w.shared && w.slots > 0:
		return errors.New("--shared and --slots are two kinds of locks; give one of them")
	}
	if err := store.CheckName(w.name); err != nil {
		return err
	}
	if err := store.CheckText("meta", w.meta); err != nil {
		return err
	}
	w.store.ttl = w.ttl
	return w.store.check()
}

func (w *want) options() []holdfast.CallOption {
	opts := append([]holdfast.CallOption{holdfast.TTL(w.ttl), holdfast.Meta(w.meta)}, w.more...)
	switch {
	case w.try:
		opts = append(opts, holdfast.Wait(0))
	case w.waitSet:
		opts = append(opts, holdfast.Wait(w.wait))
	}
	return opts
}

// grantedLess says that the store grants a shorter TTL than was asked for, or nothing.
func grantedLess(asked, granted time.Duration) string {
	if granted >= asked {
		return ""
	}
	return fmt.Sprintf("the store grants a TTL of %v instead of %v", granted.Round(time.Millisecond), asked)
}

// take takes the lock.
func (w *want) take(ctx context.Context, c *holdfast.Client) (*holdfast.Lease, error) {
	opts := w.options()
	switch {
	case w.shared:
		return c.RLock(ctx, w.name, opts...)
	case w.slots > 0:
		return c.Semaphore(w.name, w.slots).Acquire(ctx, 1, opts...)
	}
	return c.Lock(ctx, w.name, opts...)
}

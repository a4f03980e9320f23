package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// lockOptions say which lock to acquire, and how. They are common to run, once and acquire.
type lockOptions struct {
	flags  *pflag.FlagSet
	store  storeFlag
	name   string
	try    bool
	wait   time.Duration
	ttl    time.Duration
	shared bool
	slots  int
	meta   string
	extra  []holdfast.CallOption
}

func (o *lockOptions) addTo(cmd *cobra.Command, ttlUsage string) {
	o.flags = cmd.Flags()
	o.store.addWithName(cmd)
	o.flags.BoolVarP(&o.try, "nonblock", "n", false, "do not wait if the lock is held")
	o.flags.VarP((*durationValue)(&o.wait), "wait", "w", "wait at most this long for the lock, such as 30s, or 1.5 for seconds; 0 does not wait (default: no limit)")
	o.flags.Var((*durationValue)(&o.ttl), "ttl", ttlUsage)
	o.flags.StringVar(&o.meta, "meta", "", "`TEXT` that ls and show display with the holder")
}

func (o *lockOptions) addModesTo(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.shared, "shared", "s", false, "share the lock with other holders that use --shared, as readers do")
	cmd.Flags().IntVar(&o.slots, "slots", 0, "let at most `N` holders have the lock at a time; all must use the same N")
}

func (o *lockOptions) changed(flag string) bool { return o.flags.Changed(flag) }

// check returns a usageError for the mistakes that can be found before anything is changed.
func (o *lockOptions) check() error {
	switch {
	case o.try && o.wait > 0:
		return usagef("-n and --wait exclude each other; use one of them")
	case o.shared && o.changed("slots"):
		return usagef("--shared and --slots exclude each other; use one of them")
	case o.changed("slots") && (o.slots < 1 || o.slots > store.MaxLimit):
		return usagef("--slots %d: want a number from 1 to %d", o.slots, store.MaxLimit)
	}
	if err := checkName(o.name); err != nil {
		return err
	}
	if err := store.CheckText("meta", o.meta); err != nil {
		return &usageError{err}
	}
	o.store.ttl = o.ttl
	return o.store.check()
}

func (o *lockOptions) acquire(ctx context.Context, c *holdfast.Client) (*holdfast.Lease, error) {
	opts := o.callOptions()
	switch {
	case o.shared:
		return c.RLock(ctx, o.name, opts...)
	case o.slots > 0:
		return c.Semaphore(o.name, o.slots).Acquire(ctx, 1, opts...)
	}
	return c.Lock(ctx, o.name, opts...)
}

func (o *lockOptions) callOptions() []holdfast.CallOption {
	opts := append([]holdfast.CallOption{holdfast.TTL(o.ttl), holdfast.Meta(o.meta)}, o.extra...)
	if o.try || o.changed("wait") { // with try, o.wait is 0
		opts = append(opts, holdfast.Wait(o.wait))
	}
	return opts
}

// shortenedTTL returns a message if the store granted a shorter TTL than requested.
func shortenedTTL(requested, granted time.Duration) string {
	if granted >= requested {
		return ""
	}
	return fmt.Sprintf("the store grants a TTL of %v instead of %v", granted.Round(time.Millisecond), requested)
}

// leaseTime returns how long a lock with a TTL counts as held, from the time of the request.
// It is the same as in the library.
func leaseTime(ttl time.Duration) time.Duration { return ttl - min(ttl/20, time.Second) }

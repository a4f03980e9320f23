package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func newBreakCommand() *cobra.Command {
	var flags grantFlags
	cmd := &cobra.Command{
		Use:   "break [flags] NAME --id ID",
		Short: "Take a lock away from its holder by force",
		Long: `Ends the grant with this ID, which holdfast show prints. If another holder has
the lock by now, nothing happens to it.

The former holder may still be running. It learns of the loss at its next
renewal, up to a third of its TTL later. The next holder gets a higher token,
so a resource that checks tokens is safe.`,
		RunE: flags.run(func(name string, id store.ID) error {
			return flags.withClient(name, func(ctx context.Context, c *connection) error {
				info, err := c.Inspect(ctx, name)
				if err == nil {
					err = c.Break(ctx, name, id)
				}
				if err == nil {
					complain("%s", broken(info, id))
				}
				return err
			})
		}),
	}
	flags.addTo(cmd)
	return cmd
}

// broken returns the message for a grant that was broken. Info is the lock before that.
func broken(info holdfast.Info, id holdfast.ID) string {
	for _, h := range info.Holders {
		switch {
		case h.ID != id:
		case h.State == store.Done:
			return fmt.Sprintf("%q is open again; the record that it was done is removed", info.Name)
		case h.State == store.Cooling:
			return fmt.Sprintf("%q is open again before its minimum hold is over", info.Name)
		}
	}
	return fmt.Sprintf("broke %q; its former holder may still be running", info.Name)
}

func newRenewCommand() *cobra.Command {
	var flags grantFlags
	var json bool
	ttl := acquireTTL
	cmd := &cobra.Command{
		Use:   "renew [flags] NAME --id ID",
		Short: "Renew a lock taken with acquire",
		Long: `Makes the lock last for its TTL from now, and prints the new HOLDFAST_DEADLINE
for a shell to evaluate. If the lock is no longer held, it exits with 79: stop
the work that needs the lock.`,
		RunE: flags.run(func(name string, id store.ID) error {
			flags.ttl = ttl
			var deadline time.Time
			err := flags.retry(name, func(ctx context.Context, s store.Store) (err error) {
				deadline, err = renew(ctx, s, name, id, ttl)
				return err
			})
			switch {
			case err != nil:
				return err
			case json:
				return outputJSON(grantJSON{Name: name, ID: id.String(), Deadline: deadline.Round(0)})
			}
			return output(exportLines(fmt.Sprint("HOLDFAST_DEADLINE=", deadline.Unix())))
		}),
	}
	flags.addTo(cmd)
	cmd.Flags().Var((*durationValue)(&ttl), "ttl", "how long the lock is held from now on")
	cmd.Flags().BoolVar(&json, "json", false, "print a line of JSON instead")
	return cmd
}

func renew(ctx context.Context, st store.Store, name string, id store.ID, ttl time.Duration) (time.Time, error) {
	caps := st.Capabilities()
	if err := caps.CheckTTL(ttl); err != nil {
		return time.Time{}, err
	}
	mode, err := modeOf(ctx, st, name, id)
	if err != nil {
		return time.Time{}, err
	}
	sent := time.Now()
	renewed, err := st.Renew(ctx, []store.Renewal{{Name: name, ID: id, TTL: ttl, Mode: mode}})
	switch {
	case err != nil:
		return time.Time{}, err
	case renewed[0].Status == store.Unknown:
		return time.Time{}, cmp.Or(renewed[0].Err, errors.New("the store does not know whether the lock was renewed"))
	case renewed[0].Status == store.Gone:
		return time.Time{}, holdfast.ErrNotHeld
	}
	if text := shortenedTTL(ttl, renewed[0].TTL); text != "" {
		complain("%s; renew the lock again before that time is over", text)
	}
	return sent.Add(leaseTime(renewed[0].TTL)), nil
}

// modeOf returns the mode of a grant, which a renewal must not change, or ErrNotHeld.
func modeOf(ctx context.Context, st store.Store, name string, id store.ID) (store.Mode, error) {
	page, err := st.List(ctx, store.Query{Name: name})
	if err != nil {
		return 0, err
	}
	for _, l := range page.Locks {
		for _, h := range l.Holders {
			if h.ID == id && h.State == store.Held {
				return h.Mode, nil
			}
		}
	}
	return 0, holdfast.ErrNotHeld
}

func newReleaseCommand() *cobra.Command {
	var flags grantFlags
	cmd := &cobra.Command{
		Use:   "release [flags] NAME --id ID",
		Short: "Release a lock taken with acquire",
		Long: `Releases the lock. If it is no longer held, it exits with 79: the work that
needed the lock may have overlapped with that of another holder.`,
		RunE: flags.run(func(name string, id store.ID) error { return flags.retry(name, release(name, id)) }),
	}
	flags.addTo(cmd)
	return cmd
}

// release returns a function for retry. It looks for the lock before the first Release: if the reply of
// that is lost and the lock is gone afterwards, the lock was held until then, so the work did not overlap
// with that of another holder.
func release(name string, id store.ID) func(context.Context, store.Store) error {
	tried := false
	return func(ctx context.Context, st store.Store) error {
		if !tried {
			if _, err := modeOf(ctx, st, name, id); err != nil {
				return err
			}
		}
		err := st.Release(ctx, name, id, store.Keep{})
		if tried && errors.Is(err, holdfast.ErrNotHeld) {
			return nil // an earlier attempt released it
		}
		tried = true
		return err
	}
}

// grantFlags are the flags of a command that acts on one grant of the lock NAME.
type grantFlags struct {
	storeFlag
	id string
}

func (f *grantFlags) addTo(cmd *cobra.Command) {
	f.addWithName(cmd)
	cmd.Flags().StringVar(&f.id, "id", "", "`ID` of the grant, as acquire and show print it; required")
}

// run returns a RunE that calls do with the identity of the grant.
func (f *grantFlags) run(do func(name string, id store.ID) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		if f.id == "" {
			return usagef("--id is missing; to find the grant, run: holdfast show %s", shellQuote(args[0]))
		}
		id, err := store.ParseID(f.id)
		if err != nil || id.IsZero() {
			return usagef("--id %q: want the 32 hexadecimal digits that acquire and show print", f.id)
		}
		return do(args[0], id)
	}
}

// retry calls do with the store until it succeeds.
func (f *grantFlags) retry(name string, do func(ctx context.Context, st store.Store) error) error {
	ctx, cancel := untilSignal()
	defer cancel()
	return f.withStore(ctx, name, func(st *ttlStore) error {
		return retry(ctx, func(ctx context.Context) error { return do(ctx, st) })
	})
}

// retry calls do until it succeeds, for a limited number of times. It repeats calls because after a
// lost reply it is unknown whether a call had an effect.
func retry(ctx context.Context, do func(context.Context) error) error {
	const attempts = 4
	for i := 1; ; i++ {
		callCtx, cancel := context.WithTimeout(ctx, openTimeout/2)
		err := do(callCtx)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case i == attempts, errors.Is(err, holdfast.ErrNotHeld), errors.Is(err, holdfast.ErrInvalid),
			errors.Is(err, holdfast.ErrUnsupported):
			return err
		}
		select {
		case <-time.After(25 * time.Millisecond << i):
		case <-ctx.Done():
		}
	}
}

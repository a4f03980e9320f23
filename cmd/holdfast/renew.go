package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func newRenewCommand() *cobra.Command {
	var (
		st   storeFlag
		flag idFlag
		json bool
	)
	ttl := acquireTTL
	cmd := &cobra.Command{
		Use:   "renew [flags] NAME --id ID",
		Short: "Renew a lock taken with acquire",
		Long: `Makes the lock last for its TTL from now, and prints the new HOLDFAST_DEADLINE
for a shell to evaluate. If the lock is no longer held, it exits with 79: stop
the work that needs the lock.`,
		Args:              lockArgument,
		ValidArgsFunction: st.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			id, err := flag.parse(name)
			if err != nil {
				return err
			}
			st.ttl = ttl
			var deadline time.Time
			err = st.withStore(name, func(ctx context.Context, s store.Store) error {
				deadline, err = renew(ctx, s, name, id, ttl)
				return err
			})
			switch {
			case err != nil:
				return err
			case json:
				return outputJSON(grantJSON{Name: name, ID: id.String(), Deadline: deadline.Round(0)})
			}
			return output(exportLines([]lockVar{{"HOLDFAST_DEADLINE", strconv.FormatInt(deadline.Unix(), 10)}}))
		},
	}
	st.addTo(cmd)
	flag.addTo(cmd)
	cmd.Flags().Var((*durationValue)(&ttl), "ttl", "how long the lock is held from now on")
	cmd.Flags().BoolVar(&json, "json", false, "print a line of JSON instead")
	return cmd
}

// renew extends a grant and returns its new deadline.
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
	case len(renewed) != 1 || renewed[0].Status == store.Unknown:
		return time.Time{}, errors.New("the store does not know whether the lock was renewed")
	case renewed[0].Status == store.Gone:
		return time.Time{}, holdfast.ErrNotHeld
	}
	if text := shortenedTTL(ttl, renewed[0].TTL); text != "" {
		complain("%s; renew the lock again before that time is over", text)
	}
	return sent.Add(leaseTime(renewed[0].TTL)), nil
}

// modeOf returns the mode of a grant, which a renewal must not change.
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

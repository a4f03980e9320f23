package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func newReleaseCommand() *cobra.Command {
	var (
		st   storeFlag
		flag idFlag
	)
	cmd := &cobra.Command{
		Use:   "release [flags] NAME --id ID",
		Short: "Release a lock taken with acquire",
		Long: `Releases the lock. If it is no longer held, it exits with 79: the work that
needed the lock may have overlapped with that of another holder.`,
		Args:              lockArgument,
		ValidArgsFunction: st.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			id, err := flag.parse(name)
			if err != nil {
				return err
			}
			retried := false
			return st.withStore(name, func(ctx context.Context, s store.Store) error {
				err := s.Release(ctx, name, id, store.Keep{})
				if retried && errors.Is(err, holdfast.ErrNotHeld) {
					return nil // an earlier attempt released it, and the reply was lost
				}
				retried = true
				return err
			})
		},
	}
	st.addTo(cmd)
	flag.addTo(cmd)
	return cmd
}

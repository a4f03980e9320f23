package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newMigrateCommand() *cobra.Command {
	var st storeFlag
	cmd := &cobra.Command{
		Use:   "migrate [flags]",
		Short: "Create the tables of a database, or bring them up to date",
		Long: `Creates the tables and functions of a store in a database, or brings them to
the version of this program. It does nothing if they are up to date. Locks can
be used meanwhile, also by programs of the version before. For the rights of an
account that only locks, see holdfast help schema.`,
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			db, err := st.database()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
			defer cancel()
			return fail(db.migrate(ctx, st.url), "")
		},
	}
	st.addTo(cmd)
	return cmd
}

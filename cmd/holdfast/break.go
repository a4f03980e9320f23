package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

func newBreakCommand() *cobra.Command {
	var (
		st   storeFlag
		flag idFlag
	)
	cmd := &cobra.Command{
		Use:   "break [flags] NAME --id ID",
		Short: "Take a lock away from its holder by force",
		Long: `Ends the grant with this ID, which holdfast show prints. If another holder has
the lock by now, nothing happens to it.

The former holder may still be running. It learns of the loss at its next
renewal, up to a third of its TTL later. The next holder gets a higher token,
so a resource that checks tokens is safe.`,
		Args:              lockArgument,
		ValidArgsFunction: st.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			id, err := flag.parse(name)
			if err != nil {
				return err
			}
			err = st.withClient(name, func(ctx context.Context, c *holdfast.Client) error {
				return c.Break(ctx, name, id)
			})
			if err == nil {
				complain("broke %q; its former holder may still be running", name)
			}
			return err
		},
	}
	st.addTo(cmd)
	flag.addTo(cmd)
	return cmd
}

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
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
			outcome := ""
			err = st.withClient(name, func(ctx context.Context, c *holdfast.Client) error {
				info, err := c.Inspect(ctx, name)
				if err != nil {
					return err
				}
				outcome = broken(info, id)
				return c.Break(ctx, name, id)
			})
			if err == nil {
				complain("%s", outcome)
			}
			return err
		},
	}
	st.addTo(cmd)
	flag.addTo(cmd)
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

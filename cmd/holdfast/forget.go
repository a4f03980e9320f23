package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

func newForgetCommand() *cobra.Command {
	var st storeFlag
	cmd := &cobra.Command{
		Use:   "forget [flags] NAME",
		Short: "Forget that holdfast once has run a command",
		Long: `Removes the record that a command has succeeded under NAME, so that the next
holdfast once runs it again. It does nothing to a lock that is held: to take that
away from its holder, use holdfast break.`,
		Example: `    holdfast once --keep 20h report -- ./send-report
    holdfast forget report    # send it once more today`,
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			return st.withClient(name, func(ctx context.Context, c *holdfast.Client) error {
				err := c.Forget(ctx, name)
				var held *holdfast.HeldError
				switch {
				case err == nil:
					complain("%q is open again; the record that it was done is removed", name)
				case errors.Is(err, holdfast.ErrNotHeld): // what the caller wants is true already
					complain("nothing to forget: there is no record that %q was done", name)
					return nil
				case errors.As(err, &held):
					complain("%s; only what holdfast once has done can be forgotten; to open it by force, see: holdfast break --help", describeHeld(held))
					return exitCode(exitBusy)
				}
				return err
			})
		},
	}
	st.addWithName(cmd)
	return cmd
}

package main

import (
	"bytes"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man [DIR]",
		Short: "Write the manual pages",
		Long: `Writes holdfast.1 and a page for each command to the directory DIR. Without DIR,
it prints holdfast.1. The pages have the current date, or the date in the
variable SOURCE_DATE_EPOCH.`,
		Example: `    # Install the pages for man(1)
    holdfast man ~/.local/share/man/man1`,
		Args: arguments(0, "DIR"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			header := &doc.GenManHeader{Source: "Holdfast", Manual: "User Commands"}
			if len(args) == 0 {
				var page bytes.Buffer
				if err := doc.GenMan(cmd.Root(), header, &page); err != nil {
					return err
				}
				return output(page.String())
			}
			err := os.MkdirAll(args[0], 0o755)
			if err == nil {
				err = doc.GenManTree(cmd.Root(), header, args[0])
			}
			if err != nil {
				complain("man: cannot write the pages: %v; name a directory that you can write to", err)
				return exitCode(exitOutput)
			}
			return nil
		},
	}
}

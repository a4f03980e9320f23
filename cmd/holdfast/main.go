package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

func main() {
	job.Inner(os.Args) // does not return in the guard, or in the process that becomes the job
	os.Exit(execute(os.Args[1:]))
}

// newRootCommand returns holdfast with all its commands, in the order in which help lists them. To
// add one, write a function that returns its cobra.Command, and add it here. Help, completion and
// the manual pages are generated from it.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "Locks for shell jobs, across processes and hosts",
		Long:          rootHelp,
		Version:       version(),
		Args:          cobra.ArbitraryArgs,
		RunE:          unknownCommand,
		SilenceErrors: true, // execute reports them
		SilenceUsage:  true,

		DisableAutoGenTag:          true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("holdfast {{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.AddCommand(
		newRunCommand(),
		newOnceCommand(),
		newLsCommand(),
		newShowCommand(),
		newWatchCommand(),
		newBreakCommand(),
		newForgetCommand(),
		newAcquireCommand(),
		newRenewCommand(),
		newReleaseCommand(),
		newUICommand(),
		newDoctorCommand(),
		newBenchCommand(),
		newSchemaCommand(),
		newMigrateCommand(),
		newVersionCommand(),
		newManCommand(),
	)
	for _, cmd := range root.Commands() {
		cmd.Flags().SortFlags = false
	}
	return root
}

// execute runs the command that the arguments select, and returns the exit code.
func execute(args []string) int {
	cobra.EnableCommandSorting = false
	cobra.MousetrapHelpText = "" // cobra would refuse a start by double click on Windows; a shortcut may start a job
	root := newRootCommand()
	root.SetArgs(args)
	var text strings.Builder // of help and completion: cobra ignores or does not explain a failed write
	root.SetOut(&text)
	cmd, err := root.ExecuteC()
	if err == nil && text.Len() > 0 {
		err = output(text.String())
	}
	if err == nil {
		return 0
	}
	var usage *usageError
	switch {
	case errors.As(err, &usage) && cmd == root:
		complain("%v; see: holdfast help", usage)
		return exitUsage
	case errors.As(err, &usage):
		complain("%s: %v; see: holdfast %[1]s --help", cmd.Name(), usage)
		return exitUsage
	}
	var code exitCode
	errors.As(fail(err, ""), &code)
	return int(code)
}

// unknownCommand returns the error for arguments that are not those of a command.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no command")
	}
	if similar := root.SuggestionsFor(args[0]); len(similar) > 0 {
		return usagef("unknown command %q (did you mean: holdfast %s?)", args[0], strings.Join(similar, ", "))
	}
	return usagef("unknown command %q", args[0])
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(0),
		RunE:  func(*cobra.Command, []string) error { return output("holdfast " + version() + "\n") },
	}
}

// version returns the version that the Go command recorded in this binary.
func version() string {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		v = info.Main.Version
	}
	return fmt.Sprintf("%s (%s, %s/%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

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

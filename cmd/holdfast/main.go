package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

func main() {
	job.Inner(os.Args) // does not return in the guard, or in the process that becomes the job
	os.Exit(execute(os.Args[1:]))
}

// newRootCommand returns holdfast with all its commands, in the order in which help lists them.
// To add a command, write a function that returns its cobra.Command in a file of its own, and add
// it here. Help, completion and the manual pages are generated from the command.
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
	cmd, err := root.ExecuteC()
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

// unknownCommand returns the error for arguments that are not those of a command. It suggests
// similar names.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no command")
	}
	if similar := root.SuggestionsFor(args[0]); len(similar) > 0 {
		return usagef("unknown command %q (did you mean: holdfast %s?)", args[0], strings.Join(similar, ", "))
	}
	return usagef("unknown command %q", args[0])
}

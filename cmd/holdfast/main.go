package main

import (
	"errors"
	"os"
	"slices"
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
		Use:           "holdfast COMMAND [flags] [arguments]",
		Short:         "Locks for shell jobs, across processes and hosts",
		Long:          rootHelp,
		Version:       version(),
		SilenceErrors: true, // execute reports them
		SilenceUsage:  true,

		DisableAutoGenTag:          true,
		SuggestionsMinimumDistance: 2,
	}
	root.Flags().BoolP("version", "V", false, "print the version")
	root.SetVersionTemplate("holdfast {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	help := newHelpCommand()
	root.SetHelpCommand(help)
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
		newCompletionCommand(),
		newManCommand(),
		help,
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
	var helpErr error
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { helpErr = output(helpText(cmd)) })
	cmd, err := root, checkFirst(root, args)
	if err == nil {
		cmd, err = root.ExecuteC()
	}
	if err = errors.Join(err, helpErr); err == nil {
		return 0
	}
	var usage *usageError
	switch {
	case errors.As(err, &usage) && (cmd == root || cmd.Name() == "help"):
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

// checkFirst checks that the command is the first argument. Cobra would accept flags in front of
// it, and would show the help of the root for an unknown command with --help.
func checkFirst(root *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("no command")
	case slices.Contains([]string{"-h", "--help", "-V", "--version", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]):
		return nil
	case strings.HasPrefix(args[0], "-"):
		return usagef("%s: flags come after the command", args[0])
	}
	_, err := findCommand(root, args[0])
	return err
}

// findCommand returns the command with this name. The error suggests similar names.
func findCommand(root *cobra.Command, name string) (*cobra.Command, error) {
	for _, cmd := range root.Commands() {
		if cmd.Name() == name {
			return cmd, nil
		}
	}
	if similar := root.SuggestionsFor(name); len(similar) > 0 {
		return nil, usagef("unknown command %q (did you mean: holdfast %s?)", name, strings.Join(similar, ", "))
	}
	return nil, usagef("unknown command %q", name)
}

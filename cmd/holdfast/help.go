package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The help texts are Markdown, and the manual pages are made from them. A block that is indented
// by four spaces keeps its lines. The texts are wrapped at 80 columns.

const rootHelp = `Holdfast runs a command while it holds a lock, and shows who holds which locks.
A lock is a name in a store. Processes that use the same store and the same
name wait for each other.

    holdfast run nightly-backup -- ./backup.sh

Stores:

    sqlite:PATH
        a file, for processes on one host
    redis://[USER:PASSWORD@]HOST[:PORT][/DB]
        a Redis server; rediss:// uses TLS
    redis+sentinel://HOST,HOST,.../NAME[/DB]
        Redis with Sentinel; rediss+sentinel:// uses TLS
    redis+cluster://HOST,HOST,...
        Redis Cluster; rediss+cluster:// uses TLS
    quorum+redis://HOST,HOST,HOST...
        a majority of independent Redis servers; quorum+rediss:// uses TLS
    etcd://[USER:PASSWORD@]HOST,HOST,...[/PREFIX]
        etcd; etcds:// uses TLS
    zk://[USER:PASSWORD@]HOST,HOST,...[/ROOT]
        ZooKeeper; zks:// uses TLS
    mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE
        MySQL or MariaDB; tls=true in the URL uses TLS
    postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE
        PostgreSQL, also as postgresql:; sslmode=verify-full uses TLS

Environment:

    HOLDFAST_STORE  the URL of the store, if --store is not given. Without
                    both, the store is an SQLite file for processes on one
                    host: ~/.local/state/holdfast/locks.db (see also
                    XDG_STATE_HOME), or in ~/Library/Application Support
                    on macOS, or in %LocalAppData% on Windows
    NO_COLOR        if set, the output has no colours

` + exitCodesHelp

const exitCodesHelp = `Exit codes:

    0       success; for run and once, CMD exited with 0, or once did not
            need to run it
    64      the command line is wrong, or the store does not support the
            request; nothing was changed
    69      the store cannot be reached, refused the login, or failed
    74      the output cannot be written
    75      another holder has the lock (see also -E and --busy-ok)
    79      the lock was lost, or is no longer held
    126     CMD cannot be executed
    127     CMD was not found
    128+N   CMD was ended by signal N, or holdfast was while it waited
    others  the exit code of CMD`

const jobEnvironmentHelp = `Environment of CMD:

    HOLDFAST_NAME      the name of the lock
    HOLDFAST_TOKEN     the fencing token, a number greater than that of every
                       earlier holder
    HOLDFAST_OWNER     the holder as others see it
    HOLDFAST_ID        the identity of this grant
    HOLDFAST_DEADLINE  the time at which the lock is lost if it is not
                       renewed, in seconds since 1970; each renewal moves it,
                       but the variable keeps its first value

`

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		Args:  arguments(0, "COMMAND"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			about := cmd.Root()
			if len(args) > 0 {
				about, err = findCommand(about, args[0])
			}
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// helpText returns the help of a command.
func helpText(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\n\n%s.\n", cmd.UseLine(), cmd.Short)
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(&b, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if cmd.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", cmd.Long)
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(80))
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nFor the flags of a command, see: holdfast help COMMAND\n")
	}
	return b.String()
}

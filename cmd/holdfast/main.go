package main

import (
	"os"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

func main() {
	job.Inner(os.Args) // does not return if we are the guard, or the process that becomes the job
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	p := program()
	if len(args) > 0 && (args[0] == "--version" || args[0] == "-V") {
		args = append([]string{"version"}, args[1:]...)
	}
	parsed, err := p.Parse(args)
	switch {
	case err != nil:
		complain("%v", err)
		return exitUsage
	case parsed.Help && parsed.Command == nil:
		return output(p.Help())
	case parsed.Help:
		return output(p.HelpOf(parsed.Command))
	}
	return parsed.Command.Run(parsed.Operands, parsed.Tail)
}

// program is the table of everything that the command can do.
func program() *cli.Program {
	p := &cli.Program{
		Name:  "holdfast",
		Short: "locks for shell jobs, across processes and hosts",
		Long: `Runs a command while it holds a lock, and tells who holds what. A lock is a name in a store; everybody who names the same store and the same lock waits for each other.

 holdfast run nightly-backup -- ./backup.sh`,
		Sections: []cli.Section{storeURLs, environment, exitCodes},
	}
	p.Commands = []*cli.Command{
		runCommand(), onceCommand(), lsCommand(), showCommand(), watchCommand(), breakCommand(),
		acquireCommand(), renewCommand(), releaseCommand(),
		versionCommand(), completionCommand(p), manCommand(p), helpCommand(p),
	}
	return p
}

var environment = cli.Section{Title: "Environment", Terms: []cli.Term{
	{Word: "HOLDFAST_STORE", Text: "the store, if --store is not given; without both it is an SQLite file in the user's state directory (" + defaultStorePlace + "), which works between processes of one host"},
	{Word: "NO_COLOR", Text: "if set, nothing is coloured"},
}}

// helpCommand shows the help of another command.
func helpCommand(p *cli.Program) *cli.Command {
	c := &cli.Command{
		Name: "help", Args: "[COMMAND]",
		Short:    "Show help of a command, or of all",
		Operands: []cli.Operand{{Name: "COMMAND"}},
	}
	c.Run = func(operands, _ []string) int {
		if len(operands) == 0 {
			return output(p.Help())
		}
		if _, err := p.Parse(append(operands, "--help")); err != nil {
			complain("%v", err)
			return exitUsage
		}
		return output(p.HelpOf(p.Find(operands[0])))
	}
	return c
}

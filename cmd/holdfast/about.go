package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Short: "Print the version",
		Run: func(_, _ []string) int {
			return output(fmt.Sprintf("holdfast %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH))
		},
	}
}

// version is what the Go tools noted when they built us.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				v += " " + s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				v += "+changes"
			}
		}
	}
	return v
}

func completionCommand(p *cli.Program) *cli.Command {
	return &cli.Command{
		Name: "completion", Args: "SHELL",
		Short:    "Print a completion script for a shell: " + strings.Join(cli.Shells, ", "),
		Long:     "The first lines of the script say how to load it.",
		Operands: []cli.Operand{{Name: "SHELL", Words: cli.Shells}}, Least: 1,
		Examples: []cli.Term{{Word: "source <(holdfast completion bash)", Text: "In ~/.bashrc"}},
		Run: func(operands, _ []string) int {
			script := p.Completion(operands[0])
			if script == "" {
				complain("completion: unknown shell %q; known are %s", operands[0], strings.Join(cli.Shells, ", "))
				return exitUsage
			}
			return output(script)
		},
	}
}

func manCommand(p *cli.Program) *cli.Command {
	return &cli.Command{
		Name: "man", Args: "[DIR]",
		Short:    "Write the manual pages into a directory, or print the first",
		Long:     "Writes holdfast.1 and a page for each command into DIR. Without DIR it prints holdfast.1.",
		Operands: []cli.Operand{{Name: "DIR", Kind: cli.Path}},
		Examples: []cli.Term{{Word: "holdfast man ~/.local/share/man/man1", Text: "Install them for man(1)"}},
		Run: func(operands, _ []string) int {
			pages := p.Man()
			if len(operands) == 0 {
				return output(pages[0].Text)
			}
			dir := operands[0]
			err := os.MkdirAll(dir, 0o755)
			for i := 0; i < len(pages) && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, pages[i].File), []byte(pages[i].Text), 0o644)
			}
			if err != nil {
				complain("man: cannot write the pages: %v; give a directory that you can write to", err)
				return exitOutput
			}
			return 0
		},
	}
}

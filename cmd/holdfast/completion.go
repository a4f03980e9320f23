package main

import (
	"bytes"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Prints a script for a shell to load. It completes commands, flags, and the names
of locks in the store, except those that a shell would need quotes for. The bash
script needs the package bash-completion.`,
		Example: `    # In ~/.bashrc
    source <(holdfast completion bash)

    # In ~/.zshrc, after compinit
    source <(holdfast completion zsh)

    # In ~/.config/fish/config.fish
    holdfast completion fish | source

    # In the profile of PowerShell
    holdfast completion powershell | Out-String | Invoke-Expression`,
		Args:      arguments(1, "SHELL"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			generate, ok := map[string]func(io.Writer) error{
				"bash":       func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
				"zsh":        root.GenZshCompletion,
				"fish":       func(w io.Writer) error { return root.GenFishCompletion(w, true) },
				"powershell": root.GenPowerShellCompletionWithDesc,
			}[args[0]]
			if !ok {
				return usagef("unknown shell %q; want %s", args[0], strings.Join(shells, ", "))
			}
			var script bytes.Buffer
			if err := generate(&script); err != nil {
				return err
			}
			return output(script.String())
		},
	}
}

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/core/selection"
)

// A filter has the flags that say which locks a list shows, and in which order.
type filter struct {
	selection.Selection
	in map[string]*bool // by state
}

func (f *filter) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.in = make(map[string]*bool)
	for i, usage := range []string{"only locks that are held", "only names that holdfast once has closed", "only locks that somebody waits for"} {
		f.in[selection.States[i]] = flags.Bool(selection.States[i], false, usage)
	}
	flags.StringVar(&f.Text, "contains", "", "only locks whose name, holder or waiter contains `TEXT`")
	words := selection.Words()
	flags.StringVar(&f.Order, "sort", words[0], "`ORDER` of the list: "+strings.Join(words, ", "))
	cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder))
}

func (f *filter) check() error {
	for state, only := range f.in {
		if *only {
			f.States = append(f.States, state)
		}
	}
	if f.Check() != nil {
		return usagef("--sort %s: want one of %s", f.Order, strings.Join(selection.Words(), ", "))
	}
	return nil
}

func (f *filter) apply(all []holdfast.Info) []holdfast.Info { return f.InStates(f.Containing(all)) }

package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

// A filter says which locks a list shows, and in which order.
type filter struct {
	held, done, waiting bool // if one is set, only locks in these states
	text                string
	sort                string
	order               int // index in orders
}

func (f *filter) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.held, "held", false, "only locks that are held")
	flags.BoolVar(&f.done, "done", false, "only names that holdfast once has closed")
	flags.BoolVar(&f.waiting, "waiting", false, "only locks that somebody waits for")
	flags.StringVar(&f.text, "contains", "", "only locks whose name, holder or waiter contains `TEXT`")
	flags.StringVar(&f.sort, "sort", orders[0].flag, "`ORDER` of the list: "+strings.Join(orderFlags(), ", "))
	cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(orderFlags(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder))
}

// check returns a usageError if the order is unknown.
func (f *filter) check() error {
	if f.order = slices.Index(orderFlags(), f.sort); f.order < 0 {
		return usagef("--sort %s: want one of %s", f.sort, strings.Join(orderFlags(), ", "))
	}
	return nil
}

// apply returns the locks that the filter lets through, in order.
func (f *filter) apply(all []holdfast.Info) []holdfast.Info {
	found := slices.DeleteFunc(slices.Clone(all), func(info holdfast.Info) bool { return !f.inState(&info) || !matches(&info, f.text) })
	slices.SortStableFunc(found, func(a, b holdfast.Info) int {
		return cmp.Or(orders[f.order].compare(&a, &b), strings.Compare(a.Name, b.Name))
	})
	return found
}

func (f *filter) inState(info *holdfast.Info) bool {
	return !f.held && !f.done && !f.waiting ||
		f.held && has(info, holdfast.StateHeld) || f.done && has(info, holdfast.StateDone) || f.waiting && len(info.Waiters) > 0
}

// has reports whether a lock has a holder in that state.
func has(info *holdfast.Info, state holdfast.State) bool {
	return slices.ContainsFunc(info.Holders, func(h holdfast.Holder) bool { return h.State == state })
}

// matches reports whether the name, a holder or a waiter of a lock contains a text.
func matches(info *holdfast.Info, text string) bool {
	return strings.Contains(info.Name, text) ||
		slices.ContainsFunc(info.Holders, func(h holdfast.Holder) bool {
			return strings.Contains(h.Owner, text) || strings.Contains(h.Meta, text)
		}) ||
		slices.ContainsFunc(info.Waiters, func(w holdfast.Waiter) bool { return strings.Contains(w.Owner, text) })
}

// An order is how a list is sorted.
type order struct {
	flag, text string
	compare    func(a, b *holdfast.Info) int
}

var orders = []order{
	{"name", "name", func(a, b *holdfast.Info) int { return 0 }},
	{"age", "longest held", func(a, b *holdfast.Info) int {
		return -cmp.Compare(most(a, func(h holdfast.Holder) time.Duration { return h.Age }), most(b, func(h holdfast.Holder) time.Duration { return h.Age }))
	}},
	{"waiting", "most waiting", func(a, b *holdfast.Info) int { return -cmp.Compare(len(a.Waiters), len(b.Waiters)) }},
	{"left", "least left", func(a, b *holdfast.Info) int {
		return -cmp.Compare(most(a, func(h holdfast.Holder) time.Duration { return -h.Left }), most(b, func(h holdfast.Holder) time.Duration { return -h.Left }))
	}},
}

func orderFlags() (flags []string) {
	for _, o := range orders {
		flags = append(flags, o.flag)
	}
	return flags
}

// most returns the highest value of the holders of a lock.
func most(info *holdfast.Info, of func(holdfast.Holder) time.Duration) time.Duration {
	highest := time.Duration(-maxDuration)
	for _, h := range info.Holders {
		highest = max(highest, of(h))
	}
	return highest
}

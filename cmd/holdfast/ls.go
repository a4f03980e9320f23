package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-lock/holdfast/store"
)

func newLsCommand() *cobra.Command {
	var st storeFlag
	var show filter
	var json, names bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [PREFIX]",
		Short: "List locks with their holders and waiters",
		Long: `Lists the locks that have holders or waiters, one line per holder, if their names
start with PREFIX. --held, --done and --waiting show only locks in these states,
and together all that are in one of them. LEFT is the time after which the
lock is free if its holder does not renew it. On a narrow terminal other texts
than names are cut; --json prints everything.`,
		Args:              prefixArgument,
		ValidArgsFunction: st.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			if json && names {
				return usagef("--json and --names exclude each other; use one of them")
			}
			if err := show.check(); err != nil {
				return err
			}
			return st.withClient("", func(ctx context.Context, c *connection) error {
				all, err := collect(ctx, c, prefixOf(args))
				if err != nil {
					return err
				}
				all = show.apply(all)
				switch {
				case json:
					return outputJSON(locksJSON(all)...)
				case names:
					return outputNames(all)
				}
				return outputTable(all)
			})
		},
	}
	st.addTo(cmd)
	show.addTo(cmd)
	cmd.Flags().BoolVar(&json, "json", false, "print a line of JSON for each lock")
	cmd.Flags().BoolVar(&names, "names", false, "print only the names")
	return cmd
}

func outputNames(all []holdfast.Info) error {
	for _, info := range all {
		if err := output(clean(info.Name) + "\n"); err != nil {
			return err
		}
	}
	return nil
}

func outputTable(all []holdfast.Info) error {
	if len(all) == 0 {
		if tty.IsTerminal(os.Stdout) {
			complain("no lock to show")
		}
		return nil
	}
	width := 0
	if tty.IsTerminal(os.Stdout) {
		width, _ = tty.Size(os.Stdout)
	}
	return output(strings.Join(lockTable(all).lines(width), "\n") + "\n")
}

func lockTable(all []holdfast.Info) *table {
	t := &table{head: []string{"NAME", "HOLDER", "MODE", "TOKEN", "HELD", "LEFT", "WAITING", "META"}, cuts: []int{7, 3, 1}} // META, TOKEN, HOLDER
	for _, info := range all {
		waiting := ""
		if n := len(info.Waiters); n > 0 {
			waiting = strconv.Itoa(n)
		}
		if len(info.Holders) == 0 {
			t.add(info.Name, "", "", "", "", "", waiting, "")
		}
		for _, h := range info.Holders {
			t.add(info.Name, h.Owner, mode(&h, info.Limit), strconv.FormatInt(h.Token, 10),
				short(h.Age), short(h.Left), waiting, h.Meta)
		}
	}
	return t
}

func mode(h *holdfast.Holder, limit int) string {
	switch {
	case h.State != store.Held:
		return h.State.String()
	case h.Mode == store.Permits:
		return fmt.Sprintf("%d of %d", h.Weight, limit)
	}
	return h.Mode.String()
}

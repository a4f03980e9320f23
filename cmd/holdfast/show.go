package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func newShowCommand() *cobra.Command {
	var st storeFlag
	var json bool
	cmd := &cobra.Command{
		Use:   "show [flags] NAME",
		Short: "Show one lock: its holders with their IDs, and its queue",
		Long: `Shows everything about one lock. The ID of a holder is the one that break needs.
A lock without holders and waiters is free, which is not an error.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return st.withClient(args[0], func(ctx context.Context, c *connection) error {
				info, err := c.Inspect(ctx, args[0])
				switch {
				case err != nil:
					return err
				case json:
					return outputJSON(locksJSON([]holdfast.Info{info})...)
				}
				return output(showText(info))
			})
		},
	}
	st.addWithName(cmd)
	cmd.Flags().BoolVar(&json, "json", false, "print a line of JSON")
	return cmd
}

func showText(info holdfast.Info) string {
	var b strings.Builder
	title := clean(info.Name)
	if len(info.Holders) == 0 && len(info.Waiters) == 0 {
		return title + " is free\n"
	}
	b.WriteString(title + "\n")
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "    %-7s %s\n", key, clean(value))
		}
	}
	for _, h := range info.Holders {
		b.WriteString("  " + map[store.State]string{store.Held: "held", store.Done: "closed, done", store.Cooling: "closed, cooling"}[h.State] +
			" by " + clean(h.Owner) + "\n")
		line("id", h.ID.String())
		line("mode", mode(&h, info.Limit))
		line("token", fmt.Sprint(h.Token))
		line("since", fmt.Sprintf("%s (%s ago)", time.Now().Add(-h.Age).Format(time.DateTime), short(h.Age)))
		if h.State == store.Held {
			line("left", short(h.Left)+" unless renewed")
		} else {
			line("left", short(h.Left)+", then it is free again")
		}
		line("meta", h.Meta)
	}
	for i, w := range info.Waiters {
		fmt.Fprintf(&b, "  %d. in the queue: %s\n", i+1, clean(w.Owner))
		line("id", w.ID.String())
		line("mode", mode(&holdfast.Holder{Mode: w.Mode, Weight: w.Weight}, info.Limit))
		line("since", fmt.Sprintf("%s (%s ago)", time.Now().Add(-w.Age).Format(time.DateTime), short(w.Age)))
		line("meta", w.Meta)
	}
	return b.String()
}

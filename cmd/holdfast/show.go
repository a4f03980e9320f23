package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-lock/holdfast/store"
)

func showCommand() *cli.Command {
	var (
		st   storeFlag
		json bool
	)
	return &cli.Command{
		Name: "show", Args: "NAME",
		Short:    "Show one lock: its holders with their ids, and its queue",
		Long:     "Shows everything about one lock. The id of a holder is what break takes. A name that nobody holds or waits for is free; that is no error.",
		Flags:    []*cli.Flag{st.flag(), cli.Bool("json", 0, &json, "print a line of JSON")},
		Operands: []cli.Operand{{Name: "NAME", Kind: cli.Lock}}, Least: 1,
		Run: func(operands, _ []string) int {
			name := operands[0]
			if name == "" {
				complain("show: %v", store.CheckName(name))
				return exitUsage
			}
			return st.with("show", name, func(ctx context.Context, c *holdfast.Client) error {
				info, err := c.Inspect(ctx, name)
				if err != nil {
					return err
				}
				if json {
					if outputJSON(lockToJSON(info)) != 0 {
						return errOutput
					}
					return nil
				}
				if output(showText(info, tty.Colours(os.Stdout))) != 0 {
					return errOutput
				}
				return nil
			})
		},
	}
}

func showText(info holdfast.Info, colour bool) string {
	var b strings.Builder
	title := clean(info.Name)
	if colour {
		title = bold + title + plain
	}
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
			line("left", short(h.Left)+", then it is open again")
		}
		line("meta", h.Meta)
	}
	for i, w := range info.Waiters {
		fmt.Fprintf(&b, "  %d. in the queue: %s\n", i+1, clean(w.Owner))
		line("id", w.ID.String())
		how := w.Mode.String()
		if w.Mode == store.Permits {
			how = fmt.Sprintf("%d of %d", w.Weight, info.Limit)
		}
		line("mode", how)
		line("since", fmt.Sprintf("%s (%s ago)", time.Now().Add(-w.Age).Format(time.DateTime), short(w.Age)))
		line("meta", w.Meta)
	}
	return b.String()
}

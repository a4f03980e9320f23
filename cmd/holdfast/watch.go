package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-lock/holdfast/internal/core/selection"
	"github.com/holdfast-lock/holdfast/store"
)

// minInterval protects the store from a mistyped interval.
const minInterval = 100 * time.Millisecond

type watcher struct {
	store    storeFlag
	filter   filter
	prefix   string
	interval time.Duration
	json     bool
}

func newWatchCommand() *cobra.Command {
	w := &watcher{interval: time.Second}
	cmd := &cobra.Command{
		Use:   "watch [flags] [PREFIX]",
		Short: "Show the list of ls, refreshed every second",
		Long: `Shows the list until you type Ctrl-C. On a terminal it shows as many lines as
fit, and goes on if the store does not answer. If the output is not a terminal,
it prints the list repeatedly; with --json, each list is one line.`,
		Args:              prefixArgument,
		ValidArgsFunction: w.store.completeName,
		RunE: func(_ *cobra.Command, args []string) error {
			w.prefix = prefixOf(args)
			if err := w.filter.check(); err != nil {
				return err
			}
			if w.interval < minInterval {
				return usagef("--interval %v: want at least %v", w.interval, minInterval)
			}
			return w.store.withClient("", w.watch)
		},
	}
	w.store.addTo(cmd)
	w.filter.addTo(cmd)
	cmd.Flags().Var((*durationValue)(&w.interval), "interval", "time between two refreshes")
	cmd.Flags().BoolVar(&w.json, "json", false, "print each list as a line of JSON")
	return cmd
}

func (w *watcher) watch(_ context.Context, c *connection) error {
	ctx, stop := untilSignal()
	defer stop()
	defer context.AfterFunc(ctx, func() { // a reader that has stopped blocks the output
		time.Sleep(hurryTime)
		code := 0
		if err := interruption(ctx); err != nil {
			code, _ = explain(err, "")
		}
		os.Exit(code)
	})()
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		all, err := collect(ctx, c, w.prefix)
		all = w.filter.apply(all)
		switch {
		case ctx.Err() != nil:
		case tty.IsTerminal(os.Stdout) && os.Getenv("TERM") != "dumb" && !w.json: // it understands control sequences
			err = w.draw(all, err)
		case err == nil:
			err = w.print(all)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return interruption(ctx)
		}
	}
}

// interruption returns the error of the signal that ended watch. Ctrl-C is the usual way, and not a failure.
func interruption(ctx context.Context) error {
	err := context.Cause(ctx)
	if sig := (*signalled)(nil); errors.As(err, &sig) && sig.number == int(syscall.SIGINT) {
		return nil
	}
	return err
}

func collect(ctx context.Context, c *connection, prefix string) ([]holdfast.Info, error) {
	var all []holdfast.Info
	for info, err := range c.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// print prints the list once, for a pipe or a file.
func (w *watcher) print(all []holdfast.Info) error {
	if w.json {
		return outputJSON(struct {
			Time  time.Time  `json:"time"`
			Locks []lockJSON `json:"locks"`
		}{time.Now(), locksJSON(all)})
	}
	return output(strings.Join(w.lines(all, 0), "\n") + "\n\n")
}

// draw shows the list on the whole terminal, or why there is none. It overwrites the screen line by
// line, which does not flicker.
func (w *watcher) draw(all []holdfast.Info, err error) error {
	width, height := tty.Size(os.Stdout)
	if width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	lines := w.lines(all, width)
	if err != nil {
		_, text := explain(err, "")
		lines = []string{time.Now().Format(time.DateTime) + "  " + clean(text)}
	}
	lines[0] = cut(lines[0], width)
	return output(fullScreen(lines, width, height))
}

// fullScreen returns what shows as many lines as fit. The terminal wraps a line that is too wide: if it were
// cut, two names could look alike.
func fullScreen(lines []string, width, height int) string {
	text, rows := "\x1b[H", 1 // the cursor needs a row
	for _, line := range lines {
		n := columns(line)
		if rows += max(1, (n+width-1)/width); rows > height {
			break
		}
		text += line
		if n%width != 0 { // otherwise the cursor is still on the last character
			text += "\x1b[K"
		}
		text += "\n"
	}
	return text + "\x1b[J"
}

func (w *watcher) lines(all []holdfast.Info, width int) []string {
	lines := []string{strings.Join([]string{time.Now().Format(time.DateTime), count(all), w.store.text()}, "  ")}
	if len(all) > 0 {
		lines = append(lines, lockTable(all).lines(width)...)
	}
	return lines
}

func count(all []holdfast.Info) string {
	if len(all) == 0 {
		return "no lock to show"
	}
	var parts []string
	for _, state := range []string{store.Held.String(), store.Done.String(), selection.Waiting} {
		parts = append(parts, fmt.Sprintf("%d %s", selection.Count(all, state), state))
	}
	return strings.Join(parts, ", ")
}

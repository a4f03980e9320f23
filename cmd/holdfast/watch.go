package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-lock/holdfast/internal/core/selection"
)

// minInterval protects the store from a mistyped interval.
const minInterval = 100 * time.Millisecond

// A watcher is one call of watch.
type watcher struct {
	store    storeFlag
	filter   filter
	prefix   string
	interval time.Duration
	json     bool
	signals  chan os.Signal
}

func newWatchCommand() *cobra.Command {
	w := &watcher{interval: time.Second, signals: make(chan os.Signal, 16)}
	cmd := &cobra.Command{
		Use:   "watch [flags] [PREFIX]",
		Short: "Show the list of ls, refreshed every second",
		Long: `Shows the list on the whole terminal until you type q or Ctrl-C. If the output is
not a terminal, it prints the list repeatedly; with --json, each list is one
line. On Windows it always prints.

Keys:

    up, down   select a line; also k, j, PgUp, PgDn, Home, End
    Enter      show all about the selected lock, and back
    /          show only locks whose name, holder or waiter contains a text;
               Esc shows all again
    s          sort by name, longest held, most waiting, least left
    b          break the selected grant, as holdfast break does; it asks for
               the name of the lock
    q          quit`,
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

func (w *watcher) watch(ctx context.Context, c *holdfast.Client) error {
	if tty.Fancy(os.Stdout) && !w.json {
		if keys, err := tty.Keys(os.Stdin); err == nil {
			keys() // checks that single keys work; live calls it again
			return w.live(ctx, c)
		}
	}
	job.Notify(w.signals)
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		all, err := collect(ctx, c, w.prefix)
		if err != nil {
			return err
		}
		if err := w.print(w.filter.apply(all)); err != nil {
			return err
		}
		for wait := true; wait; {
			select {
			case sig := <-w.signals:
				if n, ends := job.Ends(sig); ends {
					return quit(n)
				}
			case <-tick.C:
				wait = false
			}
		}
	}
}

// quit returns the error for a signal that ends watch. Ctrl-C is the usual way to end watch, so
// it is not a failure.
func quit(sig int) error {
	const interrupt = 2
	if sig == interrupt {
		return nil
	}
	return &signalled{sig}
}

// collect returns the locks under a prefix, sorted by name.
func collect(ctx context.Context, c *holdfast.Client, prefix string) ([]holdfast.Info, error) {
	var all []holdfast.Info
	for info, err := range c.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	slices.SortStableFunc(all, func(a, b holdfast.Info) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// print prints the list once, for a pipe or a file.
func (w *watcher) print(all []holdfast.Info) error {
	if w.json {
		locks := []lockJSON{}
		for _, info := range all {
			locks = append(locks, lockToJSON(info))
		}
		return outputJSON(struct {
			Time  time.Time  `json:"time"`
			Locks []lockJSON `json:"locks"`
		}{time.Now(), locks})
	}
	lines := []string{fmt.Sprintf("%s  %s  %s", time.Now().Format(time.DateTime), w.store.text(), count(all))}
	if len(all) > 0 {
		lines = append(lines, lockTable(all).lines(0, false)...)
	}
	return output(strings.Join(lines, "\n") + "\n\n")
}

// count describes how many locks there are in each state.
func count(all []holdfast.Info) string {
	if len(all) == 0 {
		return "no lock has a holder or a waiter"
	}
	var parts []string
	for _, state := range []holdfast.State{holdfast.StateHeld, holdfast.StateDone, holdfast.StateCooling} {
		if n := selection.Count(all, state.String()); n > 0 || state == holdfast.StateHeld {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// live shows the list on the whole terminal, and restores the terminal at the end.
func (w *watcher) live(ctx context.Context, c *holdfast.Client) error {
	job.Notify(w.signals)
	job.NotifyStop(w.signals)
	restore := w.enter()
	defer func() { restore() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type listing struct {
		all []holdfast.Info
		err error
	}
	listings, again := make(chan listing), make(chan struct{}, 1)
	go func() { // in the background, so that keys work while the store does not reply
		for tick := time.NewTicker(w.interval); ctx.Err() == nil; {
			all, err := collect(ctx, c, w.prefix)
			select {
			case listings <- listing{all, err}:
			case <-ctx.Done():
				return
			}
			select {
			case <-tick.C:
			case <-again:
			case <-ctx.Done():
			}
		}
	}()
	b := &board{store: w.store.text(), filter: w.filter}
	breakLock := func(r row) string {
		outcome := broken(b.find(r.name), r.id)
		limit, cancel := context.WithTimeout(ctx, breakTimeout)
		defer cancel()
		defer func() {
			select {
			case again <- struct{}{}:
			default:
			}
		}()
		if err := c.Break(limit, r.name, r.id); err != nil {
			_, text := explain(err, r.name)
			return text
		}
		return outcome
	}
	keys := newKeyboard()
	for {
		page := w.draw(b)
		select {
		case sig := <-w.signals:
			if job.Stops(sig) {
				restore()
				job.StopSelf(w.signals)
				restore = w.enter()
			} else if n, ends := job.Ends(sig); ends {
				return quit(n)
			}
		case c := <-keys.bytes:
			if key := keys.add(c); key != "" && b.key(key, page, breakLock) {
				return nil
			}
			keys.more()
		case <-keys.late:
			b.key(keys.alone(), page, breakLock)
		case l := <-listings:
			b.set(l.all, l.err)
		}
	}
}

// breakTimeout limits how long the screen waits for a break.
const breakTimeout = 5 * time.Second

// enter switches the terminal to the alternate screen, without a cursor, and to single keys.
func (w *watcher) enter() (restore func()) {
	keys, err := tty.Keys(os.Stdin)
	os.Stdout.WriteString("\x1b[?1049h\x1b[?25l")
	return func() {
		os.Stdout.WriteString("\x1b[?25h\x1b[?1049l")
		if err == nil {
			keys()
		}
	}
}

// draw shows the board, and returns how many lines a page has. It overwrites the screen line by
// line, which does not flicker.
func (w *watcher) draw(b *board) (page int) {
	columns, lines := tty.Size(os.Stdout)
	if columns <= 0 || lines <= 0 {
		columns, lines = 80, 24
	}
	screen := b.lines(columns, lines, tty.Colours(os.Stdout))
	screen = screen[:min(len(screen), lines)]
	os.Stdout.WriteString("\x1b[H" + strings.Join(screen, "\x1b[K\n") + "\x1b[K\x1b[J")
	return max(1, lines-3)
}

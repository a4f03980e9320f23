package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
)

// leastInterval keeps a slip of the finger from becoming a load on the store.
const leastInterval = 100 * time.Millisecond

// A watcher is one run of watch.
type watcher struct {
	store    storeFlag
	prefix   string
	interval time.Duration
	json     bool
	signals  chan os.Signal
}

func watchCommand() *cli.Command {
	w := &watcher{interval: time.Second, signals: make(chan os.Signal, 16)}
	return &cli.Command{
		Name: "watch", Args: "[PREFIX]",
		Short: "Watch locks: the list of ls, refreshed every second",
		Long:  "Shows the list on the whole terminal until q or Ctrl-C is typed. If the output is not a terminal, the list is printed again and again; with --json each time as one line. On Windows it is always printed.",
		Flags: []*cli.Flag{
			w.store.flag(),
			cli.Duration("interval", 0, &w.interval, nil, "how often to look; default: 1s"),
			cli.Bool("json", 0, &w.json, "print the list as a line of JSON each time"),
		},
		Operands: []cli.Operand{{Name: "PREFIX", Kind: cli.Lock}},
		Run: func(operands, _ []string) int {
			w.prefix = strings.Join(operands, "")
			if w.interval < leastInterval {
				complain("watch: --interval %v: the least is %v", w.interval, leastInterval)
				return exitUsage
			}
			return w.store.with("watch", w.prefix, w.watch)
		},
	}
}

func (w *watcher) watch(ctx context.Context, c *holdfast.Client) error {
	if tty.Fancy(os.Stdout) && !w.json {
		if keys, err := tty.Keys(os.Stdin); err == nil {
			keys() // only a try
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
		if err := w.print(all); err != nil {
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

// quit is how a signal ends a watch: Ctrl-C is the usual way out and no failure.
func quit(sig int) error {
	const interrupt = 2
	if sig == interrupt {
		return nil
	}
	return &signalled{sig}
}

func collect(ctx context.Context, c *holdfast.Client, prefix string) ([]holdfast.Info, error) {
	var all []holdfast.Info
	for info, err := range c.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// print writes the list once, for a pipe or a file.
func (w *watcher) print(all []holdfast.Info) error {
	var code int
	if w.json {
		locks := []lockJSON{}
		for _, info := range all {
			locks = append(locks, lockToJSON(info))
		}
		code = outputJSON(struct {
			Time  time.Time  `json:"time"`
			Locks []lockJSON `json:"locks"`
		}{time.Now(), locks})
	} else {
		lines := []string{time.Now().Format(time.DateTime) + count(len(all))}
		if len(all) > 0 {
			lines = append(lines, lockTable(all).lines(0, false)...)
		}
		code = output(strings.Join(lines, "\n") + "\n\n")
	}
	if code != 0 {
		return errOutput
	}
	return nil
}

func count(n int) string {
	switch n {
	case 0:
		return "  no lock is held or waited for"
	case 1:
		return "  1 lock"
	}
	return fmt.Sprintf("  %d locks", n)
}

// live shows the list on the whole terminal, and gives the terminal back as it was.
func (w *watcher) live(ctx context.Context, c *holdfast.Client) error {
	job.Notify(w.signals)
	job.NotifyStop(w.signals)
	restore := w.enter()
	defer func() { restore() }()
	keys := make(chan byte, 16)
	go func() {
		for buf := make([]byte, 1); ; {
			if n, err := os.Stdin.Read(buf); err != nil || n == 0 {
				return
			}
			keys <- buf[0]
			if quits(buf[0]) {
				return // what is typed behind it is for the shell
			}
		}
	}()
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		all, err := collect(ctx, c, w.prefix)
		w.draw(all, err)
		select {
		case sig := <-w.signals:
			if job.Stops(sig) {
				restore()
				job.StopSelf(w.signals)
				restore = w.enter()
			} else if n, ends := job.Ends(sig); ends {
				return quit(n)
			}
		case key := <-keys:
			if quits(key) {
				return nil
			}
		case <-tick.C:
		}
	}
}

func quits(key byte) bool { return key == 'q' || key == 'Q' }

// enter takes the terminal over: a screen of its own, no cursor, single keys.
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

// draw shows the list, or why there is none. It overwrites line by line, so that nothing
// flickers.
func (w *watcher) draw(all []holdfast.Info, err error) {
	columns, lines := tty.Size(os.Stdout)
	if columns <= 0 || lines <= 0 {
		columns, lines = 80, 24
	}
	colour := tty.Colours(os.Stdout)
	rows := []string{cut(time.Now().Format(time.TimeOnly)+count(len(all))+"   q quits", columns), ""}
	switch {
	case err != nil:
		_, text := explain(err, w.prefix)
		rows = []string{cut(time.Now().Format(time.TimeOnly)+"  "+clean(text), columns)}
	case len(all) > 0:
		rows = append(rows, lockTable(all).lines(columns, colour)...)
	}
	if len(rows) > lines {
		more := fmt.Sprintf("… %d more", len(rows)-lines+1)
		rows = append(rows[:lines-1], more)
	}
	os.Stdout.WriteString("\x1b[H" + strings.Join(rows, "\x1b[K\n") + "\x1b[K\x1b[J")
}

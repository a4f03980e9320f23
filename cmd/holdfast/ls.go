package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-lock/holdfast/store"
)

func lsCommand() *cli.Command {
	var (
		st    storeFlag
		json  bool
		names bool
	)
	return &cli.Command{
		Name: "ls", Args: "[PREFIX]",
		Short: "List locks: who holds, since when, how long, who waits",
		Long: `Lists the locks whose names begin with PREFIX that are held, closed or waited for, a line for each holder. LEFT is when the lock ends if its holder does not renew it.

With --json each lock is a line of JSON.`,
		Flags: []*cli.Flag{
			st.flag(),
			cli.Bool("json", 0, &json, "print a line of JSON for each lock"),
			cli.Bool("names", 0, &names, "print the names only"),
		},
		Operands: []cli.Operand{{Name: "PREFIX", Kind: cli.Lock}},
		Run: func(operands, _ []string) int {
			prefix := strings.Join(operands, "")
			if json && names {
				complain("ls: --json and --names are two forms of the same list; give one of them")
				return exitUsage
			}
			return st.with("ls", prefix, func(ctx context.Context, c *holdfast.Client) error {
				var all []holdfast.Info
				for info, err := range c.List(ctx, prefix) {
					if err != nil {
						return err
					}
					switch {
					case json:
						if outputJSON(lockToJSON(info)) != 0 {
							return errOutput
						}
					case names:
						if output(clean(info.Name)+"\n") != 0 {
							return errOutput
						}
					default:
						all = append(all, info)
					}
				}
				if json || names {
					return nil
				}
				return listing(all)
			})
		},
	}
}

// errOutput has been complained about.
var errOutput = errors.New("output")

// with opens the store for one look at it. Prefix is a name or the beginning of one.
func (s *storeFlag) with(command, prefix string, do func(ctx context.Context, c *holdfast.Client) error) int {
	if prefix != "" {
		if err := store.CheckName(prefix); err != nil {
			complain("%s: %v", command, err)
			return exitUsage
		}
	}
	if err := s.check(); err != nil {
		complain("%s: %v", command, err)
		return exitUsage
	}
	ctx := context.Background()
	c, shut, err := s.connect(ctx)
	if err == nil {
		defer shut()
		err = do(ctx, c)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errOutput):
		return exitOutput
	}
	return fail(err, prefix)
}

// listing prints the table of ls.
func listing(all []holdfast.Info) error {
	if len(all) == 0 {
		if tty.IsTerminal(os.Stdout) {
			complain("no lock is held or waited for")
		}
		return nil
	}
	width := 0
	if tty.IsTerminal(os.Stdout) {
		width, _ = tty.Size(os.Stdout)
	}
	lines := lockTable(all).lines(width, tty.Colours(os.Stdout))
	if output(strings.Join(lines, "\n")+"\n") != 0 {
		return errOutput
	}
	return nil
}

func lockTable(all []holdfast.Info) *table {
	t := &table{head: []string{"NAME", "HOLDER", "MODE", "TOKEN", "HELD", "LEFT", "WAITING", "META"}}
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

// mode is how a name is held, in a word.
func mode(h *holdfast.Holder, limit int) string {
	switch {
	case h.State != store.Held:
		return h.State.String()
	case limit > 0 && h.Mode == store.Permits:
		return fmt.Sprintf("%d of %d", h.Weight, limit)
	}
	return h.Mode.String()
}

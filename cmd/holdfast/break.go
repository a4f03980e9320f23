package main

import (
	"context"
	"errors"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/store"
)

// An idFlag is the identity of a grant.
type idFlag struct {
	id    store.ID
	given bool
}

func (f *idFlag) flag(help string) *cli.Flag {
	return cli.Func("id", 0, "ID", func(s string) error {
		id, err := store.ParseID(s)
		if err != nil || id.IsZero() {
			return errors.New("want the 32 hexadecimal digits that holdfast show prints")
		}
		f.id, f.given = id, true
		return nil
	}, help)
}

// check is for commands that need both a name and an id.
func (f *idFlag) check(command, name string) bool {
	if err := store.CheckName(name); err != nil {
		complain("%s: %v", command, err)
		return false
	}
	if !f.given {
		complain("%s: --id is missing: give the one that you mean, as it is shown by: holdfast show %s", command, shellQuote(name))
		return false
	}
	return true
}

func breakCommand() *cli.Command {
	var (
		st storeFlag
		id idFlag
	)
	return &cli.Command{
		Name: "break", Args: "NAME --id ID",
		Short: "Take a lock away from its holder by force",
		Long: `Ends exactly the grant that was seen, by its id; see holdfast show. If somebody else holds the lock by now, nothing happens to them.

The holder may still be running: it learns of the loss at its next renewal, which is up to a third of its TTL later. The next holder has a higher token, so a resource that checks tokens is safe.`,
		Flags:    []*cli.Flag{st.flag(), id.flag("which grant, as holdfast show prints it; required")},
		Operands: []cli.Operand{{Name: "NAME", Kind: cli.Lock}}, Least: 1,
		Run: func(operands, _ []string) int {
			name := operands[0]
			if !id.check("break", name) {
				return exitUsage
			}
			code := st.with("break", name, func(ctx context.Context, c *holdfast.Client) error {
				return c.Break(ctx, name, id.id)
			})
			if code == 0 {
				complain("broke %q; the holder may still be running", name)
			}
			return code
		},
	}
}

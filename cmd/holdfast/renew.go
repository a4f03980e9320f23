package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/store"
)

// byID is a command that does something to a grant by its id. A TTL is given if it extends
// the grant.
func byID(name, args, short, long string, ttl *time.Duration, extra []*cli.Flag, do func(ctx context.Context, st store.Store, name string, id store.ID) error, done func(name string, id store.ID) int) *cli.Command {
	var (
		st storeFlag
		id idFlag
	)
	return &cli.Command{
		Name: name, Args: args, Short: short, Long: long,
		Flags:    append([]*cli.Flag{st.flag(), id.flag("which grant, as acquire printed it; required")}, extra...),
		Operands: []cli.Operand{{Name: "NAME", Kind: cli.Lock}}, Least: 1,
		Run: func(operands, _ []string) int {
			lock := operands[0]
			if !id.check(name, lock) {
				return exitUsage
			}
			if err := st.check(); err != nil {
				complain("%s: %v", name, err)
				return exitUsage
			}
			ctx, cancel := untilSignal()
			defer cancel()
			if ttl != nil {
				st.ttl = *ttl
			}
			s, err := st.open(ctx)
			if err == nil {
				defer s.Close()
				err = persist(ctx, func(ctx context.Context) error { return do(ctx, s, lock, id.id) })
			}
			if err != nil {
				return fail(err, lock)
			}
			return done(lock, id.id)
		},
	}
}

func renewCommand() *cli.Command {
	ttl := acquireTTL
	var (
		json     bool
		deadline time.Time
	)
	return byID("renew", "NAME --id ID", "Extend a lock that acquire took",
		"Makes the lock last for its TTL from now, and prints the new HOLDFAST_DEADLINE for a shell to evaluate. If the lock is not held any more, it exits with 79: stop what you do under it.",
		&ttl,
		[]*cli.Flag{
			cli.Duration("ttl", 0, &ttl, nil, "how long the lock is held from now on; default: 1m"),
			cli.Bool("json", 0, &json, "print a line of JSON instead"),
		},
		func(ctx context.Context, st store.Store, name string, id store.ID) error {
			caps := st.Capabilities()
			if err := caps.CheckTTL(ttl); err != nil {
				return err
			}
			mode, err := modeOf(ctx, st, name, id)
			if err != nil {
				return err
			}
			sent := time.Now()
			renewed, err := st.Renew(ctx, []store.Renewal{{Name: name, ID: id, TTL: ttl, Mode: mode}})
			switch {
			case err != nil:
				return err
			case len(renewed) != 1 || renewed[0].Status == store.Unknown:
				return errors.New("the store does not know whether it was renewed")
			case renewed[0].Status == store.Gone:
				return holdfast.ErrNotHeld
			}
			if less := grantedLess(ttl, renewed[0].TTL); less != "" {
				complain("%s; renew the lock again before that is over", less)
			}
			deadline = sent.Add(leaseTime(renewed[0].TTL))
			return nil
		},
		func(name string, id store.ID) int {
			if json {
				return outputJSON(grantJSON{Name: name, ID: id.String(), Deadline: deadline.Round(0)})
			}
			return output(evalLines([]lockVar{{"HOLDFAST_DEADLINE", fmt.Sprint(deadline.Unix())}}))
		})
}

// leaseTime is how long a lock of a TTL counts for its holder, from when it was asked for: as
// the library has it.
func leaseTime(ttl time.Duration) time.Duration { return ttl - min(ttl/20, time.Second) }

// modeOf returns how the grant holds the name: a renewal must not change it.
func modeOf(ctx context.Context, st store.Store, name string, id store.ID) (store.Mode, error) {
	page, err := st.List(ctx, store.Query{Name: name})
	if err != nil {
		return 0, err
	}
	for _, l := range page.Locks {
		for _, h := range l.Holders {
			if h.ID == id && h.State == store.Held {
				return h.Mode, nil
			}
		}
	}
	return 0, holdfast.ErrNotHeld
}

func releaseCommand() *cli.Command {
	asked := false
	return byID("release", "NAME --id ID", "Give back a lock that acquire took",
		"Releases the lock. If it is not held any more, it exits with 79: what was done under it may have overlapped with another.",
		nil, nil,
		func(ctx context.Context, st store.Store, name string, id store.ID) error {
			err := st.Release(ctx, name, id, store.Keep{})
			if asked && errors.Is(err, holdfast.ErrNotHeld) {
				return nil // an earlier attempt did it, and its answer was lost
			}
			asked = true
			return err
		},
		func(string, store.ID) int { return 0 })
}

// persist makes a few attempts at a call whose outcome can be unknown.
func persist(ctx context.Context, call func(context.Context) error) error {
	const attempts = 4
	for i := 1; ; i++ {
		callCtx, cancel := context.WithTimeout(ctx, openTimeout/2)
		err := call(callCtx)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, holdfast.ErrNotHeld), errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrUnsupported):
			return err
		case i == attempts:
			return err
		}
		select {
		case <-time.After(25 * time.Millisecond << i):
		case <-ctx.Done():
		}
	}
}

package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// An idFlag is the flag --id of a command that acts on one grant.
type idFlag struct{ text string }

func (f *idFlag) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "id", "", "`ID` of the grant, as acquire and show print it; required")
}

// parse returns the identity of the grant.
func (f *idFlag) parse(name string) (store.ID, error) {
	if f.text == "" {
		return store.ID{}, usagef("--id is missing; to find the grant, run: holdfast show %s", shellQuote(name))
	}
	id, err := store.ParseID(f.text)
	if err != nil || id.IsZero() {
		return store.ID{}, usagef("--id %q: want the 32 hexadecimal digits that acquire and show print", f.text)
	}
	return id, nil
}

// withStore calls do with the store until it succeeds, for a limited number of times. It repeats
// calls because after a lost reply it is unknown whether a call had an effect.
func (s *storeFlag) withStore(name string, do func(ctx context.Context, st store.Store) error) error {
	if err := s.check(); err != nil {
		return err
	}
	ctx, cancel := untilSignal()
	defer cancel()
	st, err := s.open(ctx)
	if err == nil {
		defer st.Close()
		err = retry(ctx, func(ctx context.Context) error { return do(ctx, st) })
	}
	return fail(err, name)
}

func retry(ctx context.Context, call func(context.Context) error) error {
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

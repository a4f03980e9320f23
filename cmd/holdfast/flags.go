package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/store"
)

// arguments returns a check for at least the given number of arguments, and at most one for each name.
func arguments(least int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// lockArgument checks that the only argument is the name of a lock.
func lockArgument(cmd *cobra.Command, args []string) error {
	if err := arguments(1, "NAME")(cmd, args); err != nil {
		return err
	}
	return checkName(args[0])
}

// prefixArgument checks that the only argument, if there is one, is the start of a name.
func prefixArgument(cmd *cobra.Command, args []string) error {
	if err := arguments(0, "PREFIX")(cmd, args); err != nil || prefixOf(args) == "" {
		return err
	}
	return checkName(args[0])
}

func prefixOf(args []string) string { return strings.Join(args, "") }

func checkName(name string) error {
	if err := store.CheckName(name); err != nil {
		return &usageError{err}
	}
	return nil
}

// maxDuration is longer than any useful value, and far from an overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

// A durationValue is the value of a flag: a duration such as 1m30s, or a number of seconds
// such as 1.5, which flock(1) and sleep(1) accept too.
type durationValue time.Duration

func (d *durationValue) Set(s string) error {
	parsed, err := time.ParseDuration(s)
	if strings.Trim(s, "0123456789.") == "" {
		var seconds float64
		seconds, err = strconv.ParseFloat(s, 64)
		parsed = time.Duration(math.Round(min(seconds, 2*maxDuration.Seconds()) * float64(time.Second)))
	}
	switch {
	case err != nil:
		return errors.New("want a duration such as 30s or 1m30s, or seconds such as 1.5")
	case parsed < 0:
		return errors.New("a duration cannot be negative")
	case parsed > maxDuration:
		return errors.New("want at most " + maxDuration.String())
	}
	*d = durationValue(parsed)
	return nil
}

// String returns an empty string for zero, so that help shows no default.
func (d *durationValue) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (*durationValue) Type() string { return "DURATION" }

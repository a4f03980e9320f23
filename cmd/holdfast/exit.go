package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/holdfast-lock/holdfast"
)

// Exit codes, as in sysexits.h and in shells. Neither of them uses 79.
const (
	exitUsage       = 64
	exitUnavailable = 69
	exitOutput      = 74
	exitBusy        = 75
	exitLost        = 79
	exitNotExec     = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

// An exitCode is the error of a command that has failed and has reported why.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func exit(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

// A usageError is a mistake on the command line. Nothing was changed yet.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// Error returns the message. It may quote an argument, and somebody who forgets --store gives a URL
// with a password where something else is expected. The password may contain an @ or a space.
func (e *usageError) Error() string { return password.ReplaceAllString(e.error.Error(), "$1***@") }

var password = regexp.MustCompile(`(?s)(://).*@`)

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// complain prints a message to stderr. It escapes control characters, as in a name or an error.
func complain(format string, args ...any) {
	fmt.Fprintln(os.Stderr, "holdfast: "+clean(fmt.Sprintf(format, args...)))
}

func output(text string) error {
	if _, err := os.Stdout.WriteString(text); err != nil {
		complain("cannot write the output: %v", err)
		return exitCode(exitOutput)
	}
	return nil
}

// A signalled is the cause of a context that a signal has cancelled.
type signalled struct{ number int }

func (s *signalled) Error() string { return fmt.Sprintf("ended by signal %d", s.number) }

// explain returns the exit code for an error, and a message that says what to do about it.
func explain(err error, name string) (int, string) {
	text := strings.TrimPrefix(err.Error(), "holdfast: ")
	var signal *signalled
	var held *holdfast.HeldError
	switch {
	case errors.As(err, &signal):
		return exitSignal + signal.number, text
	case errors.As(err, &held):
		return exitBusy, describeHeld(held) + "; try again later, or see: holdfast show " + shellQuote(name)
	case errors.Is(err, holdfast.ErrDone):
		return 0, text
	case errors.Is(err, holdfast.ErrLost):
		return exitLost, text
	case errors.Is(err, holdfast.ErrNotHeld):
		return exitLost, fmt.Sprintf("%q is no longer held under that ID: released, broken, expired, or lost by the store; see: holdfast show %s", name, shellQuote(name))
	case strings.Contains(text, "node of a Cluster"): // the message says what to do
		return exitUnavailable, text
	case strings.Contains(text, "check the user and the password"): // ErrInvalid, but the password may have changed
		return exitUnavailable, text + "; the URL is in --store or HOLDFAST_STORE"
	case errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrUnsupported):
		return exitUsage, text
	case errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable, text + ": the store did not answer in time; check that it is running, and check --store or HOLDFAST_STORE"
	case strings.Contains(text, "HOLDFAST_STORE"): // the message says what to do
		return exitUnavailable, text
	}
	return exitUnavailable, text + "; check that the store can be reached and written to, and check --store or HOLDFAST_STORE"
}

// fail reports an error unless it was already reported, and returns its exit code.
func fail(err error, name string) error {
	var code exitCode
	var usage *usageError
	if err == nil || errors.As(err, &code) || errors.As(err, &usage) {
		return err
	}
	n, text := explain(err, name)
	complain("%s", text)
	return exit(n)
}

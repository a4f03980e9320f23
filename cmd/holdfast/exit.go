package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
)

// Exit codes: those of sysexits.h, and of shells.
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

var exitCodes = cli.Section{Title: "Exit codes", Terms: []cli.Term{
	{Word: "0", Text: "it worked; of run and once: the command ended with 0, or once found it done"},
	{Word: "64", Text: "the command line is wrong, or the store cannot do what was asked; nothing was touched"},
	{Word: "69", Text: "the store cannot be reached, or failed"},
	{Word: "74", Text: "the output could not be written"},
	{Word: "75", Text: "another holder has the lock (-E changes this code, --busy-ok makes it 0)"},
	{Word: "79", Text: "the lock was lost, or is not held any more"},
	{Word: "126", Text: "the command of run or once cannot be executed"},
	{Word: "127", Text: "the command of run or once was not found"},
	{Word: "128+n", Text: "signal n ended the command of run or once, or holdfast while it waited"},
	{Word: "others", Text: "the exit code of the command of run or once"},
}}

// complain prints a sentence for people. No control character reaches their terminal,
// whoever wrote it into a name or an error.
func complain(format string, args ...any) {
	fmt.Fprintln(os.Stderr, "holdfast: "+clean(fmt.Sprintf(format, args...)))
}

// output writes what was asked for.
func output(text string) int {
	if _, err := os.Stdout.WriteString(text); err != nil {
		complain("cannot write the output: %v", err)
		return exitOutput
	}
	return 0
}

// A signalled is the reason of a wait that a signal ended.
type signalled struct{ number int }

func (s *signalled) Error() string { return fmt.Sprintf("ended by signal %d", s.number) }

// explain returns the exit code of an error and a sentence that says what to do.
func explain(err error, name string) (int, string) {
	text := strings.TrimPrefix(err.Error(), "holdfast: ")
	var signal *signalled
	var held *holdfast.HeldError
	switch {
	case errors.As(err, &signal):
		return exitSignal + signal.number, text
	case errors.As(err, &held):
		return exitBusy, describeHeld(held) + "; try again later, wait longer with --wait, or look with: holdfast show " + shellQuote(name)
	case errors.Is(err, holdfast.ErrDone):
		return 0, text
	case errors.Is(err, holdfast.ErrLost):
		return exitLost, text
	case errors.Is(err, holdfast.ErrNotHeld):
		return exitLost, fmt.Sprintf("%q is not held under that id any more: it was released, broken or expired; see: holdfast show %s", name, shellQuote(name))
	case errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrUnsupported):
		return exitUsage, text
	case errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable, text + ": the store did not answer in time; check that it runs, and --store or HOLDFAST_STORE"
	case strings.Contains(text, "HOLDFAST_STORE"): // says what to do already
		return exitUnavailable, text
	}
	return exitUnavailable, text + "; check that the store can be reached and written to, and --store or HOLDFAST_STORE"
}

// fail prints what an error means and returns its exit code.
func fail(err error, name string) int {
	code, text := explain(err, name)
	complain("%s", text)
	return code
}

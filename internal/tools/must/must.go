// Package must lets a program be a list of steps: a step that fails panics, and [Try] returns its error. Nothing
// goes on after a failure, as in a shell script with set -e.
package must

import (
	"fmt"
	"os"
)

// A failure is what a step panics with. [Try] lets other panics pass.
type failure struct{ error }

// OK fails with an error that is not nil.
func OK(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns the result of a call, or fails with its error.
func Get[T any](v T, err error) T {
	OK(err)
	return v
}

// Fail fails with an error, formatted as by fmt.Errorf.
func Fail(format string, args ...any) { OK(fmt.Errorf(format, args...)) }

// Main runs the steps of a program. If one fails, it prints the error and ends the program with status 1.
func Main(program string, steps func()) {
	if err := Try(steps); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		os.Exit(1)
	}
}

// Try runs steps until one fails, and returns its error.
func Try(steps func()) (err error) {
	defer func() {
		problem := recover()
		if f, ok := problem.(failure); ok {
			err = f.error
		} else if problem != nil {
			panic(problem)
		}
	}()
	steps()
	return nil
}

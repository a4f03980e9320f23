// Command testreport runs go test with its arguments, prints its output, and lists the skipped tests with
// their reasons. With CI=true in the environment, a skipped test or a run without any test is a failure.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

func main() {
	must.Main("testreport", func() {
		cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
		cmd.Stderr = os.Stderr
		out := must.Get(cmd.StdoutPipe())
		must.OK(cmd.Start())
		r := newReport(os.Stdout)
		readErr := r.read(out)
		runErr := cmd.Wait()
		r.sum()
		ci, _ := strconv.ParseBool(os.Getenv("CI"))
		must.OK(cmp.Or(readErr, runErr, r.verdict(ci)))
	})
}

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action, Package, Test, Output string
}

// A report collects the events of one run.
type report struct {
	w       io.Writer
	output  map[string][]string // by package and test; printed only if the test failed
	skipped []string            // with the reason

	passed, failed int
}

func newReport(w io.Writer) *report { return &report{w: w, output: make(map[string][]string)} }

// read prints results when they arrive, until the run ends.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, math.MaxInt)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(r.w, lines.Text()) // not an event, but a message of go test itself
		} else {
			r.add(e)
		}
	}
	return lines.Err()
}

func (r *report) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.w, e.Output)
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			r.output[key] = append(r.output[key], e.Output)
		}
	case "pass", "fail", "skip":
		lines := r.output[key]
		delete(r.output, key)
		switch {
		case e.Test == "":
			r.endPackage(e, lines)
		case e.Action == "pass":
			r.passed++
		case e.Action == "fail":
			r.failed++
			fmt.Fprint(r.w, strings.Join(lines, ""))
		default:
			r.skipped = append(r.skipped, strings.TrimSpace(key+": "+reason(lines)))
		}
	}
}

// endPackage prints the summary line of a package. If the package failed, it also prints the
// output that belongs to no finished test, such as a panic or a timeout.
func (r *report) endPackage(e event, own []string) {
	if e.Action != "fail" {
		own = own[max(0, len(own)-1):] // "ok …" or "? …"
	}
	for key, lines := range r.output {
		if strings.HasPrefix(key, e.Package+" ") {
			if e.Action == "fail" {
				fmt.Fprint(r.w, strings.Join(lines, ""))
			}
			delete(r.output, key)
		}
	}
	fmt.Fprint(r.w, strings.Join(own, ""))
}

// reason returns the last line that a skipped test logged.
func reason(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--- ") {
			return line
		}
	}
	return ""
}

func (r *report) sum() {
	for _, s := range r.skipped {
		fmt.Fprintln(r.w, "SKIP", s)
	}
	fmt.Fprintf(r.w, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skipped))
}

// verdict returns an error if, in CI, not every test ran.
func (r *report) verdict(ci bool) error {
	if ci && len(r.skipped) > 0 {
		return fmt.Errorf("%d skipped: in CI every test must run", len(r.skipped))
	}
	if ci && r.passed == 0 {
		return errors.New("no test ran")
	}
	return nil
}

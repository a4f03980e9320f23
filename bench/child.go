package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// childRole is the environment variable that makes this program a child process, and names its
// role. Some workloads need several processes.
const childRole = "HOLDFAST_BENCH_CHILD"

// roles are the functions that children run. A child continues on each line of its standard
// input, ends at the end of the input, and reports to its parent on its standard output.
var roles = map[string]func(ctx context.Context, args []string, in *bufio.Scanner) error{
	"taker":  takerRole,
	"waiter": waiterRole,
	"holder": holderRole,
}

// childMain is the main function of a child.
func childMain(role string) int {
	run := roles[role]
	if run == nil {
		fmt.Fprintf(os.Stderr, "bench: %s=%q is not a role\n", childRole, role)
		return 2
	}
	if err := run(context.Background(), os.Args[1:], bufio.NewScanner(os.Stdin)); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s: %v\n", role, err)
		return 1
	}
	return 0
}

// childPatience is how long a child may take to end.
const childPatience = 30 * time.Second

// A child is a child process that runs this program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startChild(ctx context.Context, role string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), childRole+"="+role)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = childPatience
	c := &child{cmd: cmd}
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(out)
	return c, cmd.Start()
}

// tell sends a line to the child.
func (c *child) tell(line string) error {
	_, err := io.WriteString(c.in, line+"\n")
	return err
}

// hear waits for the next line, whose first word must be word, and returns the rest of the line.
func (c *child) hear(word string) (string, error) {
	if !c.out.Scan() {
		return "", fmt.Errorf("a child ended before it said %q", word)
	}
	got, rest, _ := strings.Cut(c.out.Text(), " ")
	if got != word {
		return "", fmt.Errorf("a child said %q instead of %q", c.out.Text(), word)
	}
	return rest, nil
}

// end tells the child to end, and waits for it.
func (c *child) end() error {
	c.in.Close()
	timer := time.AfterFunc(childPatience, func() { c.cmd.Process.Kill() })
	defer timer.Stop()
	io.Copy(io.Discard, errReader{c.out})
	return c.cmd.Wait()
}

// errReader reads the remaining lines of a scanner, so that Wait does not cut them off.
type errReader struct{ lines *bufio.Scanner }

func (r errReader) Read([]byte) (int, error) {
	if r.lines.Scan() {
		return 0, nil
	}
	return 0, io.EOF
}

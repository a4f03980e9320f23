package sqlitestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// childEnv is the environment variable that gives a child process its role.
const childEnv = "SQLITESTORE_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(childEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	s, err := sqlitestore.Open(context.Background(), os.Args[1])
	if err == nil {
		err = roles[role](s, os.Args[2:])
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// roles are the functions that child processes run, with a store that their first argument names, and the other
// arguments. Children report on their standard output.
var roles = map[string]func(s *sqlitestore.Store, args []string) error{
	"open":  childOpen,
	"hold":  childHold,
	"queue": childQueue,
}

// A child is a child process.
type child struct {
	testing.TB
	cmd   *exec.Cmd
	lines chan string
}

// start starts a child, which is killed when the test ends.
func start(t testing.TB, role string, args ...string) *child {
	t.Helper()
	return startAs(t, role, nil, args...)
}

func startAs(t testing.TB, role string, change func(*exec.Cmd), args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	c := &child{TB: t, cmd: exec.Command(exe, args...), lines: make(chan string, 100)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+role)
	c.cmd.Stderr = os.Stderr
	if change != nil {
		change(c.cmd)
	}
	if _, err = c.cmd.StdinPipe(); err != nil { // stays open until the child ends
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		for range c.lines {
		}
		<-read
		c.cmd.Wait()
	})
	return c
}

// hears expects that the next line of the child starts with want, and returns the rest.
func (c *child) hears(want string) string {
	c.Helper()
	select {
	case line, ok := <-c.lines:
		rest, match := strings.CutPrefix(line, want)
		if !ok || !match {
			c.Fatalf("a child printed %q (or ended: %v), want %q", line, !ok, want)
		}
		return strings.TrimSpace(rest)
	case <-time.After(patience):
		c.Fatalf("a child printed nothing, want %q", want)
	}
	return ""
}

// childOpen takes NAME.
func childOpen(s *sqlitestore.Store, args []string) error {
	answer, err := s.Acquire(context.Background(), request(args[0]))
	if err != nil {
		return err
	}
	fmt.Println("token", answer.Token)
	return s.Close()
}

// childHold takes NAME for a minute and waits to be killed.
func childHold(s *sqlitestore.Store, args []string) error {
	req := request(args[0])
	answer, err := s.Acquire(context.Background(), req)
	if err != nil || !answer.Granted() {
		return fmt.Errorf("not granted: %v", err)
	}
	fmt.Println("held", answer.Token)
	select {}
}

// childQueue waits for NAME, and prints when it is queued, when it is granted and when it has released it.
func childQueue(s *sqlitestore.Store, args []string) error {
	req := suites.Queued(args[0])
	for queued := false; ; queued = true {
		answer, err := s.Acquire(context.Background(), req)
		if err != nil {
			return err
		}
		if answer.Granted() {
			fmt.Println("served", answer.Token)
			err := errors.Join(s.Release(context.Background(), req.Name, req.ID, store.Keep{}), s.Close())
			fmt.Println("ended")
			return err
		}
		if !queued {
			fmt.Println("queued", answer.Refusal.Place)
		}
		ctx, cancel := context.WithTimeout(context.Background(), answer.Refusal.Again)
		err = s.Wait(ctx, req.Name, req.ID)
		over := ctx.Err() != nil
		cancel()
		if err != nil && !over {
			return err
		}
	}
}

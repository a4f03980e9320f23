// Package fleet runs several instances of the running program as processes, so that an example
// can stop, kill and suspend them. Users need not copy it.
package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// patience is how long a fleet waits for a line of an instance, or for its end. It is long enough
// for a busy machine.
const patience = time.Minute

// command is the first argument of every instance.
const command = "instance"

// IsInstance reports whether this process was started by a Fleet, and returns the arguments after
// the first. In a test, TestMain calls main in such a process.
func IsInstance() ([]string, bool) {
	if len(os.Args) < 2 || os.Args[1] != command {
		return nil, false
	}
	return os.Args[2:], true
}

// A Fleet is a set of running instances. It prints their output, with their names. After the first
// failure its methods do nothing, and Err returns it, so that a demonstration reads as a list of
// steps.
type Fleet struct {
	ctx context.Context
	out io.Writer
	env []string
	err error // the first failure

	mu        sync.Mutex
	instances map[string]*instance
	lines     []line
	changed   chan struct{} // closed and replaced whenever an instance prints a line or ends
}

type instance struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended
	err   error         // once done
}

func (i *instance) ended() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// A line is a line of output of an instance that was not read yet.
type line struct{ name, text string }

// newFleet returns an empty fleet. It prints the output of its instances to out, and adds env to
// their environment, as "KEY=value". All waits end with ctx.
func newFleet(ctx context.Context, out io.Writer, env ...string) *Fleet {
	return &Fleet{ctx: ctx, out: out, env: env, instances: make(map[string]*instance), changed: make(chan struct{})}
}

// Err returns the first failure.
func (f *Fleet) Err() error { return f.err }

// Do makes a step of the demonstration.
func (f *Fleet) Do(step func() error) {
	if f.err == nil {
		f.err = step()
	}
}

// Start starts an instance with these arguments.
func (f *Fleet) Start(name string, args ...string) {
	f.Do(func() error { return f.start(name, args) })
}

func (f *Fleet) start(name string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append([]string{command}, args...)...)
	cmd.Env = append(os.Environ(), f.env...)
	cmd.SysProcAttr = attributes()
	output := &splitter{line: func(text string) { f.add(name, text) }}
	cmd.Stdout, cmd.Stderr = output, output
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	i := &instance{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	f.mu.Lock()
	f.instances[name] = i
	f.mu.Unlock()
	go func() {
		i.err = cmd.Wait() // returns after the last line was read
		close(i.done)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notify()
	}()
	return nil
}

func (f *Fleet) add(name, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.out, "   %-2s %s\n", name, text)
	f.lines = append(f.lines, line{name, text})
	f.notify()
}

func (f *Fleet) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Await waits for a line of the instance that starts with prefix, and returns the rest of
// the line. Each line is returned once.
func (f *Fleet) Await(name, prefix string) (rest string) {
	f.Do(func() (err error) {
		_, rest, err = f.await(name, prefix)
		return err
	})
	return rest
}

// AwaitAny waits for a line of any instance that starts with prefix, and returns the name of
// the instance.
func (f *Fleet) AwaitAny(prefix string) (name string) {
	f.Do(func() (err error) {
		name, _, err = f.await("", prefix)
		return err
	})
	return name
}

func (f *Fleet) await(name, prefix string) (who, rest string, err error) {
	err = f.until(func() (bool, error) {
		for i, l := range f.lines {
			if text, ok := strings.CutPrefix(l.text, prefix); ok && (name == "" || name == l.name) {
				f.lines = append(f.lines[:i:i], f.lines[i+1:]...)
				who, rest = l.name, text
				return true, nil
			}
		}
		if i := f.instances[name]; i != nil && i.ended() {
			return false, fmt.Errorf("instance %s ended and did not print %q: %w", name, prefix, errOr(i.err, "no error"))
		}
		return false, nil
	}, fmt.Sprintf("no line starts with %q", prefix))
	return who, rest, err
}

// until waits until condition returns true. It calls condition with the mutex held.
func (f *Fleet) until(condition func() (bool, error), problem string) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		f.mu.Lock()
		ok, err := condition()
		changed := f.changed
		f.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		case <-timeout.C:
			return fmt.Errorf("%s in %v", problem, patience)
		}
	}
}

func errOr(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}

// Tell sends a line to the standard input of an instance.
func (f *Fleet) Tell(name, text string) {
	f.Do(func() error {
		_, err := io.WriteString(f.get(name).stdin, text+"\n")
		return err
	})
}

// Finish closes the standard input of an instance, and waits until it has ended.
func (f *Fleet) Finish(name string) {
	f.Do(func() error {
		f.get(name).stdin.Close() // it may have ended before
		return nil
	})
	f.AwaitEnd(name)
}

// AwaitEnd waits until an instance has ended, without an error.
func (f *Fleet) AwaitEnd(name string) {
	f.Do(func() error {
		i := f.get(name)
		err := f.until(func() (bool, error) { return i.ended(), nil }, fmt.Sprintf("instance %s has not ended", name))
		if err == nil && i.err != nil {
			err = fmt.Errorf("instance %s: %w", name, i.err)
		}
		return err
	})
}

// Kill ends an instance without a chance to clean up, as kill -9 and a power cut do, and
// waits until it has ended.
func (f *Fleet) Kill(name string) {
	f.signal(name, "killed (SIGKILL)", func(*os.Process) error { return f.get(name).kill() })
}

func (i *instance) kill() error {
	if err := i.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-i.done
	return nil
}

// Terminate asks an instance to end, as kill and a deployment do.
func (f *Fleet) Terminate(name string) {
	f.signal(name, "stopped (SIGTERM)", func(p *os.Process) error { return p.Signal(terminate) })
}

// Suspend stops an instance in the middle of its work, as kill -STOP, a debugger, a paused
// virtual machine or a very long garbage collection does.
func (f *Fleet) Suspend(name string) { f.signal(name, "suspended (SIGSTOP)", suspend) }

// Resume continues a suspended instance.
func (f *Fleet) Resume(name string) { f.signal(name, "wakes up (SIGCONT)", resume) }

func (f *Fleet) signal(name, what string, send func(*os.Process) error) {
	f.Do(func() error {
		if err := send(f.get(name).cmd.Process); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(f.out, "   %-2s %s\n", name, what)
		return nil
	})
}

func (f *Fleet) get(name string) *instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.instances[name]
	if i == nil {
		panic("fleet: there is no instance " + name)
	}
	return i
}

// Close kills all instances that are still running.
func (f *Fleet) Close() {
	for _, i := range f.instances {
		i.kill()
	}
}

// Orders returns the lines that Tell sends to this instance. The channel is closed when the
// instance should end: after Finish, or because its fleet is gone.
func Orders() <-chan string {
	orders := make(chan string)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	return orders
}

// A splitter calls a function for every line that is written to it.
type splitter struct {
	line func(text string)
	rest []byte
}

func (s *splitter) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for {
		text, rest, ok := bytes.Cut(s.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		s.line(string(text))
		s.rest = rest
	}
}

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// childEnv is the environment variable that contains the order of a child.
const childEnv = "HOLDFAST_FAULTS_CHILD"

// An order tells a child what to do.
type order struct {
	Role     string // "hold", "wait" or "hunt"
	URL      string
	Resource string // address of a shared resource
	Name     string
	TTL      time.Duration
	Clients  int
	Who      string // the clients' owner
	Seed     uint64 // of a hunt
	Peer     string // the library of a hunt; Holdfast if empty
}

// A report is a line that a child prints.
type report struct {
	Hold    *Hold    `json:",omitempty"`
	Unknown *Attempt `json:",omitempty"`
	Said    string   `json:",omitempty"`

	// The next fields are for a hunt.
	Ends  string        `json:",omitempty"` // key of History.End
	At    time.Duration `json:",omitempty"`
	Wrong string        `json:",omitempty"` // a result that the documentation does not allow

	// The next fields describe an update of the resource, in a hunt.
	Writing  string `json:",omitempty"` // name of the resource; the update is about to be sent
	Accepted bool   `json:",omitempty"`
	Done     bool   `json:",omitempty"` // its outcome is known
}

// A child is a child process.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  chan string
	done  chan struct{} // its output has ended
	err   error         // how it ended, once done

	onWrite func(report)
}

// spawn starts a child that records into h. It is killed when the test ends.
func spawn(t testing.TB, h *History, o order, onWrite func(report)) *child {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c := &child{t: t, cmd: cmd, said: make(chan string, 1000), done: make(chan struct{}), onWrite: onWrite}
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.listen(stdout, h)
	t.Cleanup(c.kill)
	return c
}

func (c *child) listen(stdout io.Reader, h *History) {
	defer close(c.done)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // the rest is an incomplete line of a killed child
		}
		var r report
		switch {
		case json.Unmarshal(line, &r) != nil:
			os.Stderr.Write(line) // a panic, or other output
		case r.Hold != nil:
			h.Add(*r.Hold)
		case r.Unknown != nil:
			h.AddUnknown(*r.Unknown)
		case r.Ends != "":
			h.End(r.Ends, r.At)
		case r.Writing != "" || r.Wrong != "":
			c.onWrite(r)
		default:
			c.said <- r.Said
		}
	}
	c.err = c.cmd.Wait()
}

// hear waits for the next message of a child.
func (c *child) hear(want string) {
	c.t.Helper()
	select {
	case got := <-c.said:
		if got != want {
			c.t.Fatalf("the child printed %q, want %q", got, want)
		}
	case <-c.done:
		c.t.Fatalf("the child ended and did not print %q: %v", want, c.err)
	case <-time.After(limit):
		c.t.Fatalf("the child did not print %q", want)
	}
}

// tell sends a line to a child.
func (c *child) tell(word string) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, word+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends a child with SIGKILL and waits until it has ended.
func (c *child) kill() {
	c.cmd.Process.Kill()
	<-c.done
}

// finish tells a child to end, and expects that it ends without an error.
func (c *child) finish() {
	c.t.Helper()
	c.stdin.Close()
	select {
	case <-c.done:
		if c.err != nil {
			c.t.Errorf("a child failed: %v", c.err)
		}
	case <-time.After(limit):
		c.t.Errorf("a child does not end")
	}
}

// A printer prints reports, each with one write.
type printer struct {
	mu sync.Mutex
}

func (p *printer) print(r report) {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(1) // the test is gone
	}
}

func (p *printer) say(format string, args ...any) {
	p.print(report{Said: fmt.Sprintf(format, args...)})
}

func (p *printer) recorder() recorder {
	return recorder{
		note:    func(h Hold) { p.print(report{Hold: &h}) },
		unknown: func(a Attempt) { p.print(report{Unknown: &a}) },
	}
}

// runChild is the main function of a child.
func runChild(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	p := new(printer)
	switch o.Role {
	case "hold":
		return p.hold(o)
	case "wait":
		return p.wait(o)
	case "hunt":
		return p.hunt(o)
	}
	return fmt.Errorf("no such role: %q", o.Role)
}

func (o *order) open(i int) (*holdfast.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	who := o.Who
	if o.Clients > 1 {
		who = fmt.Sprintf("%s/%d", who, i)
	}
	return holdfast.Open(ctx, o.URL, holdfast.WithOwner(who), holdfast.WithTTL(o.TTL))
}

// hold takes a lock, reads the resource, and then follows the commands on its input.
func (p *printer) hold(o order) error {
	client, err := o.open(0)
	if err != nil {
		return err
	}
	h, err := p.recorder().lock(context.Background(), client, o.Name, o.TTL)
	if err != nil {
		return err
	}
	var resource *shared
	var read int64
	if o.Resource != "" {
		if resource, err = dialShared(o.Resource); err == nil {
			read, err = resource.read(o.Name, h.Token())
		}
		if err != nil {
			return err
		}
	}
	p.say("held")
	words := bufio.NewScanner(os.Stdin)
	for words.Scan() {
		switch words.Text() {
		case "write": // without looking at the lease
			p.say("write: %v", resource.write(o.Name, h.Token(), read))
		case "lease":
			<-h.Done()
			p.say("lost: %v", h.Err() != nil)
		}
	}
	return client.Close()
}

// wait queues clients for a lock. Each releases it at once.
func (p *printer) wait(o order) error {
	var all sync.WaitGroup
	for i := range o.Clients {
		client, err := o.open(i)
		if err != nil {
			return err
		}
		defer client.Close()
		all.Go(func() {
			h, err := p.recorder().lock(context.Background(), client, o.Name, o.TTL)
			if err == nil {
				err = h.unlock(context.Background())
			}
			if err != nil {
				p.say("%v", err)
			}
		})
	}
	all.Wait()
	io.Copy(io.Discard, os.Stdin)
	return nil
}

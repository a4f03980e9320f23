// Package fleet runs several instances of an example as processes, so that the example can stop, kill and
// suspend them. A demonstration is a list of steps on a Stage. A step that fails ends it.
package fleet

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
	_ "github.com/holdfast-lock/holdfast/pgstore"     // for postgres: URLs
	_ "github.com/holdfast-lock/holdfast/redisstore"  // for redis: URLs
	_ "github.com/holdfast-lock/holdfast/sqlitestore" // for sqlite: URLs, and the driver of the databases
)

// Short is the TTL in the parts in which an instance is killed or suspended.
const Short = 2 * time.Second

// patience is how long a step waits for an instance. It is long enough for a busy machine.
const patience = time.Minute

// IsInstance reports whether a Stage has started this process. In a test, TestMain calls main then.
func IsInstance() bool { return len(os.Args) > 4 && os.Args[1] == "instance" }

// An Instance is what one process of an example has.
type Instance struct {
	Ctx    context.Context // ends with SIGTERM, or when the standard input ends
	Name   string
	Args   []string
	Locks  *holdfast.Client
	DB     *sql.DB       // shared by all instances
	Orders <-chan string // lines from Stage.Tell
}

// Is reports whether an argument of the instance is arg.
func (i *Instance) Is(arg string) bool { return slices.Contains(i.Args, arg) }

// Stop tells the stage where the instance is, and waits for an order to go on.
func (i *Instance) Stop(where string) {
	fmt.Println("stopped", where)
	select {
	case <-i.Orders:
	case <-i.Ctx.Done():
	}
}

// run runs an instance. Its arguments are "instance", its name, the TTL, the file of the database, and Args.
func (e Example) run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	orders := make(chan string, 10)
	go func() {
		defer stop()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	i := &Instance{Ctx: ctx, Name: os.Args[2], Args: os.Args[5:], Orders: orders}
	i.Locks = must.Get(holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"),
		holdfast.WithPrefix("example-"+e.Name+":"), holdfast.WithOwner(i.Name),
		holdfast.WithTTL(must.Get(time.ParseDuration(os.Args[3])))))
	defer i.Locks.Close()
	i.DB = openDatabase(os.Args[4])
	defer i.DB.Close()
	i.Stop("before the start")
	must.OK(e.Instance(i))
}

// openDatabase opens the database of an example, which all instances share. It is a separate file,
// because the file of the locks belongs to Holdfast.
func openDatabase(path string) *sql.DB {
	const pragmas = "?_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_txlock=immediate"
	db := must.Get(sql.Open("sqlite", "file:"+path+pragmas))
	db.SetMaxOpenConns(8)
	return db
}

// An Example is a program of this folder.
type Example struct {
	Name     string
	Instance func(*Instance) error
	Play     func(*Stage) (proof string) // the demonstration
}

// Main is the main function of an example.
func (e Example) Main() {
	must.Main(e.Name, func() {
		if IsInstance() {
			e.run()
			return
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // so that it cleans up
		defer stop()
		proof := must.Get(e.On(ctx, os.Stdout, os.Getenv("HOLDFAST_STORE")))
		fmt.Printf("\n%s: %s\n", e.Name, proof)
	})
}

// On plays the demonstration with the locks on a store, or in a temporary SQLite file if the URL is empty.
func (e Example) On(ctx context.Context, out io.Writer, store string) (proof string, err error) {
	s := &Stage{Ctx: ctx, Out: out}
	err = must.Try(func() {
		s.folder = must.Get(os.MkdirTemp("", "holdfast-example-"))
		defer os.RemoveAll(s.folder)
		defer s.close()
		s.store = cmp.Or(store, "sqlite:"+filepath.Join(s.folder, "locks.db"))
		proof = e.Play(s)
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", s.title, err)
	}
	return proof, err
}

// A Stage is where a demonstration plays. It prints the output of the instances, with their names.
type Stage struct {
	Ctx context.Context
	Out io.Writer
	TTL time.Duration // of instances that start
	DB  *sql.DB       // of the current part

	store, folder, title, data string
	parts                      int
	instances                  map[string]*instance

	mu    sync.Mutex
	lines []Line // that were not awaited yet
}

type instance struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended context.Context // its cause is the error of the process, or context.Canceled if there is none
}

// A Line is a line that an instance has printed.
type Line struct{ Name, Text string }

// Want ends the demonstration unless ok is true.
func (s *Stage) Want(ok bool, format string, args ...any) {
	if !ok {
		must.Fail(format, args...)
	}
}

// Part begins a part of the demonstration with a new database. It has no instances yet.
func (s *Stage) Part(title, schema string) {
	s.close()
	s.parts++
	s.title, s.TTL, s.lines, s.instances = title, holdfast.DefaultTTL, nil, make(map[string]*instance)
	fmt.Fprintf(s.Out, "\n%d. %s\n", s.parts, title)
	s.data = filepath.Join(s.folder, fmt.Sprintf("data%d.db", s.parts))
	s.DB = openDatabase(s.data)
	must.Get(s.DB.ExecContext(s.Ctx, schema))
	must.OK(sqlfence.SQLite.CreateTable(s.Ctx, s.DB))
}

func (s *Stage) close() {
	for _, i := range s.instances {
		i.cmd.Process.Kill()
		<-i.ended.Done()
	}
	if s.DB != nil {
		s.DB.Close()
	}
}

// Int returns the first column of the first row of a query.
func (s *Stage) Int(query string, args ...any) (n int) {
	must.OK(s.DB.QueryRowContext(s.Ctx, query, args...).Scan(&n))
	return n
}

// Until waits until ok returns true.
func (s *Stage) Until(what string, ok func() bool) {
	for begin := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		must.OK(s.Ctx.Err())
		s.Want(time.Since(begin) < patience, "not in %v: %s", patience, what)
	}
}

// Ready starts an instance that waits for Tell.
func (s *Stage) Ready(name string, args ...string) {
	cmd := exec.Command(must.Get(os.Executable()), append([]string{"instance", name, s.TTL.String(), s.data}, args...)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+s.store)
	stdin, output := must.Get(cmd.StdinPipe()), must.Get(cmd.StdoutPipe())
	cmd.Stderr = cmd.Stdout
	must.OK(cmd.Start())
	ended, end := context.WithCancelCause(context.Background())
	s.instances[name] = &instance{cmd, stdin, ended}
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			s.print(name, lines.Text())
		}
		end(cmd.Wait())
	}()
	s.Await("stopped before the start", name)
}

// print prints a line, and keeps it for Await.
func (s *Stage) print(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, Line{name, text})
	fmt.Fprintf(s.Out, "   %-2s %s\n", name, text)
}

// Await waits for a line that starts with prefix, of any of the named instances, or of all if none is
// named. It returns the line without the prefix. Each line is returned once.
func (s *Stage) Await(prefix string, names ...string) (found Line) {
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(s.instances))
	}
	s.Until(fmt.Sprintf("%v print %q", names, prefix), func() bool {
		ended := !slices.ContainsFunc(names, func(name string) bool { return s.instances[name].ended.Err() == nil })
		s.mu.Lock()
		defer s.mu.Unlock()
		n := slices.IndexFunc(s.lines, func(l Line) bool {
			return strings.HasPrefix(l.Text, prefix) && slices.Contains(names, l.Name)
		})
		s.Want(n >= 0 || !ended, "%v ended and did not print %q", names, prefix)
		if n >= 0 {
			found = Line{s.lines[n].Name, strings.TrimPrefix(s.lines[n].Text, prefix)}
			s.lines = slices.Delete(s.lines, n, n+1)
		}
		return n >= 0
	})
	return found
}

// Tell sends an order to instances: to start, or to go on.
func (s *Stage) Tell(order string, names ...string) {
	for _, name := range names {
		must.Get(io.WriteString(s.instances[name].stdin, order+"\n"))
	}
}

// AwaitEnd waits until instances have ended without an error.
func (s *Stage) AwaitEnd(names ...string) {
	for _, name := range names {
		ended := s.instances[name].ended
		s.Until(name+" ends", func() bool { return ended.Err() != nil })
		err := context.Cause(ended)
		s.Want(err == context.Canceled, "instance %s: %w", name, err)
	}
}

// Kill ends an instance without a chance to clean up, as kill -9 and a power cut do, and waits for its end.
func (s *Stage) Kill(name string) {
	s.signal(name, "KILL", "killed")
	<-s.instances[name].ended.Done()
}

// Terminate asks an instance to end, as kill and a deployment do.
func (s *Stage) Terminate(name string) { s.signal(name, "TERM", "stopped") }

// Suspend stops an instance when it is where it calls Stop, as kill -STOP, a debugger, a paused virtual
// machine or a very long garbage collection does.
func (s *Stage) Suspend(name, where string) {
	s.Await("stopped "+where, name)
	s.signal(name, "STOP", "suspended")
}

// Resume continues a suspended instance, and tells it to go on.
func (s *Stage) Resume(name string) {
	s.signal(name, "CONT", "wakes up")
	s.Tell("go on", name)
}

// signal sends a signal by a shell, which every system with signals has.
func (s *Stage) signal(name, signal, what string) {
	pid := s.instances[name].cmd.Process.Pid
	out, err := exec.CommandContext(s.Ctx, "sh", "-c", fmt.Sprintf("kill -s %s %d", signal, pid)).CombinedOutput()
	s.Want(err == nil, "kill: %v: %s", err, out)
	s.print(name, what+" (SIG"+signal+")")
}

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

const (
	// leastTTL leaves enough time to end a job between a deadline and the end of its lock.
	leastTTL = time.Second

	// mostGrace is the longest grace by default: a patient TTL is no reason to end a job
	// long before that is needed.
	mostGrace = 10 * time.Second
)

// killMargin is how long before the deadline of the lease the job is killed, so that it is
// dead at the deadline, on a busy machine too. The guard waits for half of it, for us to act
// first.
func killMargin(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 100*time.Millisecond), time.Second)
}

func defaultGrace(ttl time.Duration) time.Duration { return min(ttl/6, mostGrace) }

// What to do with the job when the lock is lost.
const (
	lostTerm = "term"
	lostKill = "kill"
	lostWarn = "warn"
)

// runOptions are the command line of run, and of once.
type runOptions struct {
	want
	command  string        // "run" or "once"
	keep     time.Duration // once: how long a success counts
	period   time.Duration
	busyCode int
	busyOK   bool
	atLeast  time.Duration
	maxHold  time.Duration
	grace    time.Duration
	signal   syscall.Signal
	onLost   string
	script   string
	json     bool
	jsonFD   int
	verbose  bool
	quiet    bool

	keepSet, periodSet, busyCodeSet, atLeastSet, maxHoldSet, graceSet, scriptSet, jsonFDSet bool
}

func newRunOptions(command string) *runOptions {
	o := &runOptions{command: command, busyCode: exitBusy, signal: syscall.SIGTERM, onLost: lostTerm, jsonFD: 2}
	o.ttl = holdfast.DefaultTTL
	return o
}

// flags are those that run and once have in common.
func (o *runOptions) flags() []*cli.Flag {
	signal := cli.Func("signal", 0, "SIG", func(s string) error {
		sig, ok := job.ParseSignal(s)
		if !ok {
			return errors.New("want the name of a signal such as TERM, INT or HUP, or its number")
		}
		o.signal = sig
		return nil
	}, "the signal to end the job with, if the lock is about to be lost; default: TERM")
	signal.Words = job.SignalWords
	script := cli.Func("command", 'c', "SCRIPT", func(s string) error {
		o.script, o.scriptSet = s, true
		return nil
	}, `run SCRIPT with a shell (/bin/sh -c); what follows "--" are its arguments`)
	return append(o.want.flags("how long others wait for the lock if this host dies; default: 30s"),
		cli.Int("busy-code", 'E', "CODE", &o.busyCode, &o.busyCodeSet, 0, 255, "exit with CODE instead of 75 if the lock is held"),
		cli.Bool("busy-ok", 0, &o.busyOK, "exit with 0, and silently, if the lock is held"),
		cli.Duration("max-hold", 0, &o.maxHold, &o.maxHoldSet, "end CMD after it has held the lock for so long"),
		cli.Duration("grace", 0, &o.grace, &o.graceSet, "how long before the lock is lost CMD is asked to end; less than half of the TTL; default: a sixth, at most 10s"),
		signal,
		cli.OneOf("on-lost", "HOW", &o.onLost, []string{lostTerm, lostKill, lostWarn}, "what to do if the lock is lost: term (signal, then kill), kill (at once), or warn (let it run on, which is safe only if tokens are checked)"),
		script,
		cli.Bool("json", 0, &o.json, "write events as JSON lines to stderr instead of sentences"),
		cli.Int("json-fd", 0, "N", &o.jsonFD, &o.jsonFDSet, 2, 1<<20, "write events as JSON lines to file descriptor N"),
		cli.Bool("verbose", 'v', &o.verbose, "say how long it waited, and more"),
		cli.Bool("quiet", 'q', &o.quiet, "say nothing; the exit code tells"),
	)
}

var jobEnvironment = cli.Section{Title: "Environment of CMD", Terms: []cli.Term{
	{Word: "HOLDFAST_NAME", Text: "the name of the lock"},
	{Word: "HOLDFAST_TOKEN", Text: "the fencing token: a number greater than that of every earlier holder"},
	{Word: "HOLDFAST_OWNER", Text: "how others see this holder"},
	{Word: "HOLDFAST_ID", Text: "the identity of this grant"},
	{Word: "HOLDFAST_DEADLINE", Text: "when the lock ends if it is not renewed, in seconds since 1970; it is as of the start and moves with each renewal"},
}}

func runCommand() *cli.Command {
	o := newRunOptions("run")
	return &cli.Command{
		Name: "run", Args: "NAME -- CMD…",
		Short: "Run CMD while holding NAME",
		Long: `Waits its turn for the lock NAME, runs CMD, and releases the lock when CMD ends. CMD gets stdin, the terminal and all signals; its exit code becomes ours. No shell is involved unless -c asks for one.

While CMD runs the lock is renewed, three times in each TTL. If that fails, CMD and everything it started gets SIGTERM in good time and SIGKILL before the lock can be anyone else's, and run exits with 79. That holds as well if holdfast itself is killed with -9, or stopped: a guard process ends the job then.

What is killed is CMD's process group, and on Linux every descendant besides, daemons included. Not covered: on Linux, daemons that left the group, if both holdfast and its guard are killed with -9; on other Unix systems, all processes that left the group; everywhere, processes of another user (sudo), and a job that is started with --on-lost warn. On Windows the job is a job object: it ends when holdfast ends, at once and without a signal. Only the token protects against a machine that is suspended: give HOLDFAST_TOKEN to what CMD writes to, and let it refuse lower ones.

--period is for jobs that cron starts on several hosts at once. The first host runs CMD. The others find the lock held, or closed until half of the period is over, and exit with 0 in silence (-E makes that another code, and says why). So CMD runs at most once in each period, and a CMD that fails is not tried again before the next, as long as cron starts all hosts within half a period: their clocks, and the delay of their start, differ by less than that. It does not cover a host that dies while it runs CMD: after the TTL a late host would run it again. A CMD that is to be tried again until it succeeds is a case for holdfast once.

When CMD ends, the lock is released. What CMD left running in the background goes on without it.

Ctrl-Z stops CMD and holdfast. A stopped holdfast does not renew: after the TTL the lock is lost and CMD is killed.`,
		Flags: slices.Concat(o.flags(), o.modeFlags(), []*cli.Flag{
			cli.Duration("at-least", 0, &o.atLeast, &o.atLeastSet, "keep the lock closed for so long after it was taken, even if CMD ends earlier"),
			cli.Duration("period", 0, &o.period, &o.periodSet, "for the crontab of several hosts: run CMD at most once in each period of this length; see above"),
		}),
		Operands: []cli.Operand{{Name: "NAME", Kind: cli.Lock}}, Least: 1, Tail: true,
		Sections: []cli.Section{jobEnvironment, exitCodes},
		Examples: []cli.Term{
			{Word: "holdfast run nightly-backup -- ./backup.sh --full", Text: "One backup at a time"},
			{Word: "holdfast run --period 1h cleanup -- ./cleanup", Text: "In the hourly crontab of every host: the first to start runs it"},
			{Word: "holdfast run --slots 3 encoder -c 'ffmpeg -i \"$1\" out.mp4' -- in.mov", Text: "At most three at a time, with a shell"},
			{Word: "holdfast run --wait 10 deploy -- make deploy", Text: "Wait at most ten seconds"},
		},
		Run: o.run,
	}
}

// check finds the mistakes that can be seen before anything is touched, and fills in what
// depends on other flags.
func (o *runOptions) check(tail []string) error {
	if err := o.want.check(); err != nil {
		return err
	}
	switch {
	case o.scriptSet && o.script == "":
		return errors.New("-c: the script is empty")
	case !o.scriptSet && tail == nil:
		return errors.New(`no command to run: write "--" and the command behind the name, as in: holdfast run NAME -- CMD`)
	case !o.scriptSet && (len(tail) == 0 || tail[0] == ""):
		return errors.New(`no command to run behind "--"`)
	case o.busyOK && o.busyCodeSet:
		return errors.New("--busy-ok and -E are two answers to the same question; give one of them")
	case o.ttl < leastTTL:
		return fmt.Errorf("--ttl %v: too short to end a job in time; the least is %v", o.ttl, leastTTL)
	case o.maxHoldSet && o.maxHold < leastTTL:
		return fmt.Errorf("--max-hold %v: too short to end a job in time; the least is %v", o.maxHold, leastTTL)
	case o.atLeastSet && o.atLeast <= 0:
		return errors.New("--at-least 0: want a time above zero")
	case o.maxHoldSet && o.onLost == lostWarn && max(o.atLeast, o.period/2) > o.maxHold:
		return fmt.Errorf("--max-hold %v with --on-lost warn gives the lock up before --at-least or half of --period is over; leave one of them out", o.maxHold)
	case o.periodSet && (o.shared || o.slots > 0):
		return errors.New("--period is for one run at a time; leave out --shared and --slots")
	case o.periodSet && (o.atLeastSet || o.waitSet && o.wait > 0):
		return errors.New("--period does not wait, and sets the least time itself; leave out --at-least and --wait")
	case o.periodSet && o.period < 2*time.Second:
		return fmt.Errorf("--period %v: too short for hosts that start it at the same time; the least is 2s", o.period)
	case o.command == "once" && !o.keepSet:
		return errors.New("--keep is missing: say how long a success counts, as in: holdfast once --keep 20h NAME -- CMD")
	case o.keepSet && o.keep <= 0:
		return errors.New("--keep 0: want a time above zero")
	case o.graceSet && o.grace >= o.ttl/2:
		return fmt.Errorf("--grace %v: want less than half of the TTL of %v, else the job would be ended while the lock can still be renewed", o.grace, o.ttl)
	case o.graceSet && o.maxHoldSet && o.grace >= o.maxHold:
		return fmt.Errorf("--grace %v: want less than --max-hold %v, else the job would be ended at once", o.grace, o.maxHold)
	case o.quiet && o.verbose:
		return errors.New("-q says nothing and -v says more; give one of them")
	}
	if !o.graceSet {
		o.grace = defaultGrace(o.ttl)
		if o.maxHoldSet {
			o.grace = min(o.grace, o.maxHold/6)
		}
	}
	if o.periodSet {
		o.try, o.atLeast, o.atLeastSet = true, o.period/2, true
		o.busyOK = !o.busyCodeSet
	}
	if o.maxHoldSet && o.onLost == lostWarn { // else the job is ended, while the lock is held
		o.more = append(o.more, holdfast.MaxHold(o.maxHold))
	}
	if o.atLeastSet {
		o.more = append(o.more, holdfast.MinHold(o.atLeast))
	}
	return nil
}

// reporter opens what --json and --json-fd name.
func (o *runOptions) reporter() (*reporter, error) {
	r := newReporter(o.name)
	r.quiet, r.verbose = o.quiet, o.verbose
	switch {
	case o.jsonFD != 2:
		f, err := openInherited(o.jsonFD)
		if err != nil {
			return nil, fmt.Errorf("--json-fd %d: %w; open it, as in: holdfast run --json-fd %[1]d … %[1]d>events.json", o.jsonFD, err)
		}
		r.json = f
	case o.json || o.jsonFDSet:
		r.json, r.plain = os.Stderr, false
	}
	return r, nil
}

// run is the whole of it: check, find the command, take the lock, hold it, say how it went.
func (o *runOptions) run(operands, tail []string) int {
	o.name = operands[0]
	if err := o.check(tail); err != nil {
		complain("%s: %v; see: holdfast %[1]s --help", o.command, err)
		return exitUsage
	}
	report, err := o.reporter()
	if err != nil {
		complain("%s: %v", o.command, err)
		return exitUsage
	}
	code, dieOf := o.runReporting(report, tail)
	report.flush(flushTime)
	if dieOf != 0 {
		job.DieOf(dieOf)
	}
	return code
}

func (o *runOptions) runReporting(report *reporter, tail []string) (code int, dieOf syscall.Signal) {
	args := tail
	if o.scriptSet {
		args = shellArgs(o.script, tail)
	}
	path, err := job.Lookup(args[0])
	if err != nil {
		return cannotRun(report, args[0], err), 0
	}
	r := &runner{runOptions: o, report: report, signals: make(chan os.Signal, 64)}
	if o.keepSet {
		r.once = &onceCall{options: o, ended: make(chan bool), noted: make(chan error, 1)}
	}
	job.Notify(r.signals)
	job.SurviveWrites()
	code = r.takeLock()
	if r.lease != nil {
		code = r.holdLock(path, args)
	}
	r.cleanUp()
	return code, r.dieOf
}

// cannotRun is the answer to a command that cannot be executed.
func cannotRun(report *reporter, name string, err error) int {
	code := exitNotExec
	if errors.Is(err, job.ErrNotFound) {
		code = exitNotFound
	}
	report.tell(event{Event: "failed", Code: &code}, "%s: %v; check the command behind \"--\", or use -c to run it with a shell", name, err)
	return code
}

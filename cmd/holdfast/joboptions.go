package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

const (
	minTTL   = time.Second      // leaves enough time between the deadline and the end of a lock to end a job
	maxGrace = 10 * time.Second // of the default: with a long TTL, a job need not end long before the deadline
)

// killMargin returns how long before the deadline the job is killed, so that it is dead at the
// deadline even on a busy machine. The guard waits for half of that time, so that holdfast
// can act first.
func killMargin(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 100*time.Millisecond), time.Second)
}

func defaultGrace(ttl time.Duration) time.Duration { return min(ttl/6, maxGrace) }

// The values of --on-lost.
const (
	lostTerm = "term"
	lostKill = "kill"
	lostWarn = "warn"
)

var lostActions = []string{lostTerm, lostKill, lostWarn}

// jobOptions are the options of commands that run a job: run and once.
type jobOptions struct {
	lockOptions
	command    []string      // what follows "--"
	keep       time.Duration // once: how long a success is remembered
	period     time.Duration
	busyCode   int
	busyOK     bool
	minHold    time.Duration
	maxHold    time.Duration
	grace      time.Duration
	signalName string
	signal     syscall.Signal
	onLost     string
	script     string
	json       bool
	jsonFD     int
	verbose    bool
	quiet      bool
}

// addTo adds the arguments and flags that run and once have in common.
func (o *jobOptions) addTo(cmd *cobra.Command) {
	o.ttl = holdfast.DefaultTTL
	o.lockOptions.addTo(cmd, "how long others wait for the lock if this host dies")
	cmd.Args, cmd.ValidArgsFunction = o.arguments, o.complete
	f := cmd.Flags()
	f.IntVarP(&o.busyCode, "busy-code", "E", exitBusy, "exit with `CODE` if the lock is held")
	f.BoolVar(&o.busyOK, "busy-ok", false, "exit with 0 and without a message if the lock is held")
	f.Var((*durationValue)(&o.maxHold), "max-hold", "end CMD when it has held the lock for this long")
	f.Var((*durationValue)(&o.grace), "grace", "how long before the lock is lost CMD is asked to end; less than half of the TTL (default: a sixth of the TTL, at most 10s)")
	f.StringVar(&o.signalName, "signal", "TERM", "`SIGNAL` that asks CMD to end")
	f.StringVar(&o.onLost, "on-lost", lostTerm, "`ACTION` if the lock is lost: term (send the signal, then kill CMD), kill (at once), or warn (let CMD continue, which is safe only if tokens are checked)")
	f.StringVarP(&o.script, "command", "c", "", "run `SCRIPT` with a shell (/bin/sh -c); what follows \"--\" are its arguments")
	f.BoolVar(&o.json, "json", false, "write events as JSON lines to stderr, instead of messages")
	f.IntVar(&o.jsonFD, "json-fd", 2, "write events as JSON lines to file descriptor `N`")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print more messages, such as how long it waited")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no messages")
	cmd.RegisterFlagCompletionFunc("signal", cobra.FixedCompletions(job.SignalWords, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("on-lost", cobra.FixedCompletions(lostActions, cobra.ShellCompDirectiveNoFileComp))
}

// check returns a usageError for the mistakes that can be found before anything is changed,
// and sets the options that depend on others.
func (o *jobOptions) check() error {
	if err := o.lockOptions.check(); err != nil {
		return err
	}
	var known bool
	o.signal, known = job.ParseSignal(o.signalName)
	switch {
	case o.changed("command") && o.script == "":
		return usagef("-c: the script is empty")
	case o.script == "" && (len(o.command) == 0 || o.command[0] == ""):
		return usagef(`no command to run; write it after NAME and "--", as in: NAME -- CMD`)
	case o.ttl < minTTL:
		return usagef("--ttl %v: too short to end a job in time; want at least %v", o.ttl, minTTL)
	case o.busyCode < 0 || o.busyCode > 255:
		return usagef("-E %d: want a number from 0 to 255", o.busyCode)
	case o.busyOK && o.changed("busy-code"):
		return usagef("--busy-ok and -E exclude each other; use one of them")
	case !known:
		return usagef("--signal %q: want the name of a signal, such as TERM, INT or HUP", o.signalName)
	case !slices.Contains(lostActions, o.onLost):
		return usagef("--on-lost %q: want term, kill or warn", o.onLost)
	case o.jsonFD < 2:
		return usagef("--json-fd %d: want 2 or more; 0 and 1 belong to the job", o.jsonFD)
	case o.quiet && o.verbose:
		return usagef("-q and -v exclude each other; use one of them")
	case o.changed("max-hold") && o.maxHold < minTTL:
		return usagef("--max-hold %v: too short to end a job in time; want at least %v", o.maxHold, minTTL)
	case o.changed("min-hold") && o.minHold == 0:
		return usagef("--min-hold 0: want a duration above zero")
	case o.maxHold > 0 && o.onLost == lostWarn && max(o.minHold, o.period/2) > o.maxHold:
		return usagef("--max-hold %v with --on-lost warn releases the lock before --min-hold or half of --period has passed; use one of them", o.maxHold)
	case o.changed("period") && (o.shared || o.slots > 0):
		return usagef("--period is for one run at a time; leave out --shared and --slots")
	case o.changed("period") && (o.minHold > 0 || o.wait > 0):
		return usagef("--period does not wait, and sets the minimum hold itself; leave out --min-hold and --wait")
	case o.changed("period") && o.period < 2*time.Second:
		return usagef("--period %v: too short for several hosts; want at least 2s", o.period)
	case o.changed("keep") && o.keep == 0:
		return usagef("--keep 0: want a duration above zero")
	case o.changed("grace") && o.grace >= o.ttl/2:
		return usagef("--grace %v: want less than half of the TTL of %v, or the job would be ended while the lock can still be renewed", o.grace, o.ttl)
	case o.changed("grace") && o.maxHold > 0 && o.grace >= o.maxHold:
		return usagef("--grace %v: want less than --max-hold %v, or the job would be ended at once", o.grace, o.maxHold)
	}
	if !o.changed("grace") {
		o.grace = defaultGrace(o.ttl)
		if o.maxHold > 0 {
			o.grace = min(o.grace, o.maxHold/6)
		}
	}
	if o.period > 0 {
		o.try, o.minHold = true, o.period/2
		o.busyOK = !o.changed("busy-code")
	}
	if o.maxHold > 0 && o.onLost == lostWarn { // otherwise holdfast ends the job while the lock is held
		o.extra = append(o.extra, holdfast.MaxHold(o.maxHold))
	}
	if o.minHold > 0 {
		o.extra = append(o.extra, holdfast.MinHold(o.minHold))
	}
	return nil
}

// reporter returns a reporter that writes to the files of --json and --json-fd.
func (o *jobOptions) reporter() (*reporter, error) {
	r := newReporter(o.name)
	r.quiet, r.verbose = o.quiet, o.verbose
	switch {
	case o.jsonFD != 2:
		f, err := openInherited(o.jsonFD)
		if err != nil {
			return nil, usagef("--json-fd %d: %w; open it, as in: holdfast run --json-fd %[1]d ... %[1]d>events.json", o.jsonFD, err)
		}
		r.json = f
	case o.json || o.changed("json-fd"):
		r.json, r.plain = os.Stderr, false
	}
	return r, nil
}

// jobEnv returns the environment of the job: that of holdfast with the variables of the lock.
func jobEnv(l *holdfast.Lease, deadline time.Time, owner string) []string {
	ours := lockVars(l, deadline, owner)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(ours, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	return append(env, ours...)
}

// wall returns a time on the clock of the host as it is now. It may have been set since the program began.
func wall(t time.Time) time.Time { return time.Now().Add(time.Until(t)).Round(0) }

// lockVars returns the environment variables that describe a held lock.
func lockVars(l *holdfast.Lease, deadline time.Time, owner string) []string {
	return []string{
		"HOLDFAST_NAME=" + l.Name(),
		"HOLDFAST_ID=" + l.ID().String(),
		fmt.Sprint("HOLDFAST_TOKEN=", l.Token()),
		"HOLDFAST_OWNER=" + owner,
		fmt.Sprint("HOLDFAST_DEADLINE=", wall(deadline).Unix()),
	}
}

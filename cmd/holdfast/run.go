package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

func newRunCommand() *cobra.Command {
	o := new(jobOptions)
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- CMD [ARG]...",
		Short: "Run a command while holding a lock",
		Long: `Waits for the lock NAME, runs CMD, and releases the lock when CMD exits. CMD gets
the standard input, the terminal and all signals. Its exit code becomes that of
holdfast. CMD runs without a shell; see -c.

While CMD runs, holdfast renews the lock three times per TTL. If that fails, CMD
and all processes that it started get SIGTERM, and then SIGKILL before another
holder can acquire the lock, and run exits with 79. This also holds if holdfast
itself is killed with SIGKILL, or is stopped: a guard process then kills CMD.

Holdfast kills the process group of CMD, and on Linux all its descendants,
including daemons. Some processes can escape: on Linux, daemons that left the
group, if holdfast is killed with SIGKILL; on other Unix systems, all processes
that left the group; on all systems, processes of another user (sudo), and CMD
itself with --on-lost warn. On Windows, CMD runs in a job
object, and ends without a signal when holdfast ends. If the machine is
suspended, only the token helps: pass HOLDFAST_TOKEN to the resources that CMD
writes to, and let them reject lower tokens.

Use --period if cron starts CMD on several hosts. The first host runs CMD. The
others find the lock held, or closed until half of the period has passed, and
exit with 0 and without a message. With -E they exit with another code and a
message. So CMD runs at most once per period, and is not tried again in the same
period if it fails. This requires that all hosts start CMD at the same times, up
to half a period apart. If a host starts CMD later, as anacron and systemd
timers with Persistent=true do after a boot, CMD runs again, and the next
regular start may find the lock closed and skip CMD. Use holdfast once there,
with the date in NAME. If a host dies while it runs CMD, another host that
starts after the TTL runs CMD again. If CMD is to be tried again until it
succeeds, use holdfast once too.

The lock is released when CMD exits. Processes that CMD left in the background
continue without it.

Ctrl-Z stops CMD and holdfast. A stopped holdfast does not renew the lock: after
the TTL the lock is lost and CMD is killed.

` + jobEnvironmentHelp + exitCodesHelp,
		Example: `    # Run one backup at a time
    holdfast run nightly-backup -- ./backup.sh --full

    # In the hourly crontab of every host: only the first host runs it
    holdfast run --period 1h cleanup -- ./cleanup

    # Run at most three at a time, with a shell
    holdfast run --slots 3 encoder -c 'ffmpeg -i "$1" out.mp4' -- in.mov

    # Wait at most ten seconds
    holdfast run --wait 10 deploy -- make deploy`,
		RunE: o.run,
	}
	o.addTo(cmd)
	o.addModesTo(cmd)
	f := cmd.Flags()
	f.Var((*durationValue)(&o.minHold), "min-hold", "keep the lock closed for this long after it was acquired, even if CMD exits earlier")
	f.Var((*durationValue)(&o.period), "period", "run CMD at most once per period of this length on all hosts; see above")
	return cmd
}

// arguments accepts NAME, followed by "--" and a command.
func (o *jobOptions) arguments(cmd *cobra.Command, args []string) error {
	operands := args
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		operands, o.command = args[:n], args[n:]
	}
	switch {
	case len(operands) == 0:
		return usagef("NAME is missing")
	case len(operands) > 1:
		return usagef(`unexpected argument %q; write "--" before the command to run`, operands[1])
	}
	o.name = operands[0]
	return nil
}

func (o *jobOptions) complete(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return o.store.completeName(cmd, args, prefix)
	}
	return nil, cobra.ShellCompDirectiveDefault
}

func (o *jobOptions) run(*cobra.Command, []string) error {
	if err := o.check(); err != nil {
		return err
	}
	report, err := o.reporter()
	if err != nil {
		return err
	}
	code, dieOf := o.runReporting(report)
	report.flush(flushTime)
	if dieOf != 0 {
		job.DieOf(dieOf)
	}
	return exit(code)
}

// runReporting runs the job under the lock. Holdfast must end itself with dieOf, if it is not 0.
func (o *jobOptions) runReporting(report *reporter) (code int, dieOf syscall.Signal) {
	args := o.command
	if o.script != "" {
		args = shellArgs(o.script, o.command)
	}
	path, err := job.Lookup(args[0])
	if err != nil {
		return cannotRun(report, args[0], err), 0
	}
	r := &runner{jobOptions: o, report: report, signals: make(chan os.Signal, 64)}
	if o.keep > 0 {
		r.once = &onceCall{keep: o.keep, ended: make(chan bool, 1), recorded: make(chan error, 1)}
	}
	job.Notify(r.signals)
	job.SurviveWrites()
	code = r.acquireLock()
	if r.lease != nil && code == 0 {
		code = r.holdLock(path, args)
	}
	r.cleanUp()
	return code, r.dieOf
}

func cannotRun(report *reporter, name string, err error) int {
	code := exitNotExec
	if errors.Is(err, job.ErrNotFound) {
		code = exitNotFound
	}
	report.tell(event{Event: "failed", Code: &code}, "%s: %v; check the command after \"--\", or use -c to run it with a shell", name, err)
	return code
}

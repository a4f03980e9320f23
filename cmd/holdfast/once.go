package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

func newOnceCommand() *cobra.Command {
	o := new(jobOptions)
	cmd := &cobra.Command{
		Use:   "once [flags] --keep DURATION NAME -- CMD [ARG]...",
		Short: "Run a command unless it has succeeded recently on any host",
		Long: `Runs CMD under the lock NAME as holdfast run does, unless CMD has exited with 0
under that name within the last DURATION, on any host. In that case it exits
with 0 and without a message. While another host runs CMD, it waits for the
result; -n, --wait and --busy-ok work as they do for run.

A CMD that fails is not recorded, so the next call runs it again. The same is
true if CMD loses its lock or its host dies, even if it had done all its work:
CMD runs at least once, and exactly once only if nothing crashes. Let the
resources that CMD writes to detect a repetition, or reject a HOLDFAST_TOKEN
that is lower than one that they have seen.

To see when and where CMD succeeded, use holdfast show NAME. To forget it, use
holdfast forget NAME.

` + jobEnvironmentHelp + exitCodesHelp,
		Example: `    # In the crontab of every host, several times in the morning
    holdfast once --keep 20h report -- ./send-report

    # In a timer of every host that also starts missed runs: once a day
    holdfast once --keep 48h "backup:$(date -u +%F)" -- ./backup.sh

    # At the start of every instance: the first migrates, the others wait
    holdfast once --keep 8760h migrate:v42 -- ./migrate`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !o.changed("keep") {
				return usagef("--keep is missing; it sets how long a success counts, as in: holdfast once --keep 20h NAME -- CMD")
			}
			return o.run(cmd, args)
		},
	}
	cmd.Flags().Var((*durationValue)(&o.keep), "keep", "how long a success counts, from the end of CMD; required")
	o.addTo(cmd)
	return cmd
}

// errFailed is the result of a job that must not be recorded as done.
var errFailed = errors.New("the job did not succeed")

// A onceCall is a call of Client.Once while a job runs. The job has a lease of its own that
// shares the grant, so that it runs like the job of any other lease.
type onceCall struct {
	keep     time.Duration
	ended    chan bool  // receives whether the job succeeded; has room for a value
	recorded chan error // receives the result of Client.Once, and is closed
}

// acquire returns a lease when the job should run.
func (o *onceCall) acquire(ctx context.Context, c *holdfast.Client, lock *lockOptions) (*holdfast.Lease, error) {
	leases := make(chan *holdfast.Lease, 1)
	go func() {
		defer close(o.recorded)
		o.recorded <- c.Once(ctx, lock.name, o.keep, func(ctx context.Context) error {
			lease, err := c.Lock(ctx, lock.name, holdfast.Reentrant())
			if err != nil {
				return err
			}
			leases <- lease
			if !<-o.ended {
				return errFailed
			}
			return nil
		}, lock.callOptions()...)
	}()
	select {
	case lease := <-leases:
		return lease, nil
	case err := <-o.recorded:
		return nil, err
	}
}

// finish passes the result of the job to Client.Once, and returns an error if the lock was lost or a
// success could not be recorded. A second call has no effect.
func (o *onceCall) finish(success bool) error {
	o.ended <- success // the buffer has room, since the job has received the value of an earlier call
	if err := <-o.recorded; !errors.Is(err, errFailed) || errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return nil
}

func newForgetCommand() *cobra.Command {
	var st storeFlag
	cmd := &cobra.Command{
		Use:   "forget [flags] NAME",
		Short: "Forget that holdfast once has run a command",
		Long: `Removes the record that a command has succeeded under NAME, so that the next
holdfast once runs it again. It does nothing to a lock that is held: to take that
away from its holder, use holdfast break.`,
		Example: `    holdfast once --keep 20h report -- ./send-report
    holdfast forget report    # send it once more today`,
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			return st.withClient(name, func(ctx context.Context, c *connection) error {
				err := c.Forget(ctx, name)
				var held *holdfast.HeldError
				switch {
				case err == nil:
					complain("%q is open again; the record that it was done is removed", name)
				case errors.Is(err, holdfast.ErrNotHeld): // what the caller wants is true already
					complain("nothing to forget: there is no record that %q was done", name)
					return nil
				case errors.As(err, &held):
					complain("%s; only what holdfast once has done can be forgotten; to open it by force, see: holdfast break --help", describeHeld(held))
					return exitCode(exitBusy)
				}
				return err
			})
		},
	}
	st.addWithName(cmd)
	return cmd
}

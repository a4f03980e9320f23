package main

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
)

func onceCommand() *cli.Command {
	o := newRunOptions("once")
	return &cli.Command{
		Name: "once", Args: "--keep DUR NAME -- CMD…",
		Short: "Run CMD unless it succeeded lately anywhere",
		Long: `Runs CMD under the lock NAME as holdfast run does, unless CMD ended with 0 under that name in the last DUR, on any host. Then it exits with 0 and says nothing. While another host runs CMD, it waits for the outcome: -n, --wait and --busy-ok change that as they do for run.

A CMD that fails is not noted, so the next one runs it again. So is one that loses its lock or whose host dies, even if all its work was done: CMD runs at least once, and only without a crash exactly once. Let what CMD writes to recognize a repetition, or refuse a HOLDFAST_TOKEN that is lower than one it has seen.

holdfast show NAME tells when and where it was done, and holdfast break forgets it.`,
		Flags: append([]*cli.Flag{
			cli.Duration("keep", 0, &o.keep, &o.keepSet, "how long a success counts, from the end of CMD; required"),
		}, o.flags()...),
		Operands: []cli.Operand{{Name: "NAME", Kind: cli.Lock}}, Least: 1, Tail: true,
		Sections: []cli.Section{jobEnvironment, exitCodes},
		Examples: []cli.Term{
			{Word: "holdfast once --keep 20h report -- ./send-report", Text: "In the crontab of every host, several times a morning"},
			{Word: "holdfast once --keep 8760h migrate:v42 -- ./migrate", Text: "When every instance starts: the first migrates, the others wait for it"},
		},
		Run: o.run,
	}
}

// errFailed is the outcome of a job that is not to be noted as done.
var errFailed = errors.New("the job did not succeed")

// A onceCall is a call of Client.Once around a job. The job itself runs under a lease that
// shares the grant, as under any other lease.
type onceCall struct {
	options *runOptions
	ended   chan bool  // the job has ended, with success
	noted   chan error // the outcome of Once
	only    sync.Once
	err     error
}

// take returns a lease when it is time to run the job.
func (o *onceCall) take(ctx context.Context, c *holdfast.Client, w *want) (*holdfast.Lease, error) {
	leases := make(chan *holdfast.Lease, 1)
	go func() {
		o.noted <- c.Once(ctx, w.name, o.options.keep, func(ctx context.Context) error {
			lease, err := c.Lock(ctx, w.name, holdfast.Reentrant())
			if err != nil {
				return err
			}
			leases <- lease
			if !<-o.ended {
				return errFailed
			}
			return nil
		}, w.options()...)
	}()
	select {
	case lease := <-leases:
		return lease, nil
	case err := <-o.noted:
		o.only.Do(func() {}) // there is nothing to finish
		return nil, err
	}
}

// finish says how the job ended, and returns an error if a success could not be noted. Only
// the first call counts.
func (o *onceCall) finish(success bool) error {
	o.only.Do(func() {
		o.ended <- success
		o.err = <-o.noted
	})
	if errors.Is(o.err, errFailed) {
		return nil
	}
	return o.err
}

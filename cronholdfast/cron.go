// Package cronholdfast adds jobs to github.com/robfig/cron that several hosts have in common: each
// tick is run by one of them.
//
//	cr := cron.New(cron.WithLocation(time.UTC))
//	jobs := cronholdfast.New(ctx, cr, c, cron.DefaultLogger)
//	_, err := jobs.AddFunc("0 2 * * *", "report", func(ctx context.Context, tick time.Time) error {
//		return sendReport(ctx, tick)
//	})
//	...
//	cr.Start()
//
// The scheduled time is part of the name of the lock, such as report:2026-01-02T02:00:00Z, so the
// clocks of the hosts may differ, and the job may be short. All hosts must have the same spec and time
// zone. With "@every 5m", cron counts from the start of each process, so the name has the time rounded
// down to 5 minutes: the job runs once in each such interval, on the host that is first.
//
// While one host runs a job, the others wait. If that host dies, or its job fails or panics, the
// next one runs the tick, so a tick is run at least once: see Once of a holdfast.Client. Runs of two
// ticks can overlap if the job takes longer than the interval, as with cron on a single host.
//
// This is not a cron.JobWrapper, because a wrapper knows neither the entry nor the tick that it
// runs. The wrappers of cron.WithChain apply to these jobs as to all others.
package cronholdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// remember is how far the clock of a host may be behind: how long beyond the next tick a tick stays done.
const remember = time.Hour

// Jobs adds jobs to a cron.Cron.
type Jobs struct {
	ctx    context.Context
	cr     *cron.Cron
	c      *holdfast.Client
	logger cron.Logger
}

// New returns Jobs of cr that use the locks of c. When ctx ends, jobs stop waiting for other hosts,
// and the contexts of jobs that run here end. Failures are logged as errors, and ticks that another
// host has run as info.
func New(ctx context.Context, cr *cron.Cron, c *holdfast.Client, logger cron.Logger) *Jobs {
	return &Jobs{ctx, cr, c, logger}
}

// AddFunc adds a job. Its name must be the same on all hosts, and different from those of other
// jobs. At each tick of the spec, fn runs on one host, with the scheduled time. Its context carries the
// fencing token (holdfast.TokenFrom), and ends if the lock is lost, with a cause that matches
// holdfast.ErrLost. The options apply to the lock of each tick: with holdfast.Wait(0) the other hosts do
// not wait, and do not take over.
//
// AddFunc returns the error of cron for a bad spec, and an error that matches holdfast.ErrInvalid
// for a bad name or a nil fn.
func (s *Jobs) AddFunc(spec, name string, fn func(ctx context.Context, tick time.Time) error, opts ...holdfast.CallOption) (cron.EntryID, error) {
	err := cmp.Or(store.CheckName(name), store.CheckName(lockName(name, time.Now())))
	if err == nil && fn == nil {
		err = fmt.Errorf("%w: fn is nil", holdfast.ErrInvalid)
	}
	if err != nil {
		return 0, fmt.Errorf("holdfast: job %q: %w", name, err)
	}
	j := &job{s, name, fn, opts, make(chan cron.EntryID, 1)}
	id, err := s.cr.AddJob(spec, j)
	j.id <- id
	return id, err
}

type job struct {
	*Jobs
	name string
	fn   func(ctx context.Context, tick time.Time) error
	opts []holdfast.CallOption
	id   chan cron.EntryID // holds one value, as soon as it is known
}

// Run runs the latest tick, unless another host does.
func (j *job) Run() {
	id := <-j.id
	j.id <- id
	e := j.cr.Entry(id)
	if e.Prev.IsZero() {
		j.logger.Error(errors.New("not started by its schedule, or removed"), "holdfast", "job", j.name)
		return
	}
	tick, keep := latest(e, time.Now().Round(0)) // a monotonic clock may stop while the machine is suspended
	ran := false
	err := j.c.Once(j.ctx, lockName(j.name, tick), keep, func(ctx context.Context) error {
		ran = true
		return j.fn(ctx, tick)
	}, j.opts...)
	switch {
	case err == nil:
	case !ran && (errors.Is(err, holdfast.ErrDone) || errors.Is(err, holdfast.ErrHeld)):
		j.logger.Info("holdfast", "job", j.name, "tick", tick, "skipped", err)
	default:
		j.logger.Error(err, "holdfast", "job", j.name, "tick", tick)
	}
}

func lockName(job string, tick time.Time) string {
	return job + ":" + tick.UTC().Format(time.RFC3339Nano)
}

// latest returns the last tick of an entry that is due, and how long the store must remember it. After
// this host was suspended, that can be a later tick than the one for which cron has started the job.
func latest(e cron.Entry, now time.Time) (tick time.Time, keep time.Duration) {
	tick, next := e.Prev, e.Schedule.Next(e.Prev)
	for !next.IsZero() && !next.After(now) {
		tick, next = next, e.Schedule.Next(next)
	}
	keep = remember
	if !next.IsZero() {
		keep += next.Sub(now)
	}
	if every, ok := e.Schedule.(cron.ConstantDelaySchedule); ok {
		tick = tick.Truncate(every.Delay)
	}
	return tick, keep
}

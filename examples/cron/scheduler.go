package main

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// remember is how long a tick is remembered as done: longer than clocks differ or an instance can be late.
const remember = time.Hour

// A scheduler runs a job at every tick of a clock, such as every full minute. All hosts run a scheduler,
// and one of them runs the job of each tick. If that host dies, another one takes over.
type scheduler struct {
	locks  *holdfast.Client
	name   string // of the job
	period time.Duration
	now    func() time.Time // time.Now; in the demonstration the clocks of the hosts differ

	// job does the work of one tick. It runs at least once: if its host dies after the work and before the
	// store knows that it is done, another host runs it again. Its context is cancelled if the lock is lost.
	job func(ctx context.Context, tick time.Time) error

	// log is called with the outcome of each tick on this host: nil if this host has run the job,
	// holdfast.ErrDone if another one has.
	log func(tick time.Time, err error)
}

// run runs the job at every tick, unless another host has done so, until ctx ends.
func (s *scheduler) run(ctx context.Context) error {
	for tick := s.now().Truncate(s.period).Add(s.period); ; tick = tick.Add(s.period) {
		select {
		case <-time.After(tick.Sub(s.now())):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// A host that was asleep for a long time has many ticks to catch up with. The store may
		// have forgotten that the job of an old tick is done.
		if s.now().Sub(tick) > remember/2 {
			s.log(tick, errors.New("skipped: too old"))
			continue
		}
		s.log(tick, s.runTick(ctx, tick))
	}
}

// runTick runs the job of one tick, unless another host has done it. While another host is running it,
// runTick waits: if that host dies or its job fails, this one runs the job. The tick is part of the name,
// so it does not matter how much the clocks differ, as long as all hosts use the same ticks.
func (s *scheduler) runTick(ctx context.Context, tick time.Time) error {
	if s.locks == nil { // for the demonstration: every host has the same crontab and uses no lock
		return s.job(ctx, tick)
	}
	name := s.name + ":" + tick.UTC().Format(time.RFC3339Nano)
	return s.locks.Once(ctx, name, remember, func(ctx context.Context) error {
		return s.job(ctx, tick)
	})
}

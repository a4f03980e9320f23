package main

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
	"github.com/holdfast-lock/holdfast/store"
)

// A runner is one run, from the wait for the lock to its release.
type runner struct {
	*runOptions
	report  *reporter
	signals chan os.Signal

	client  atomic.Pointer[holdfast.Client]
	store   store.Store
	lease   *holdfast.Lease
	since   time.Time // from when the lock counts: when it was asked for with success
	renewed chan struct{}
	failure atomic.Pointer[error] // of the last renewal, if it failed
	dieOf   syscall.Signal        // how to end: as Ctrl-C ends other programs
	hurry   bool                  // do not wait long for a store that failed
}

// observe is told every event of the client.
func (r *runner) observe(e holdfast.Event) {
	defer r.report.observe(e) // act first
	switch e.Kind {
	case holdfast.EventWaiting:
		if os.Getenv("HOLDFAST_NAME") == r.name {
			go r.warnNested()
		}
	case holdfast.EventRenewed:
		r.failure.Store(nil)
		select {
		case r.renewed <- struct{}{}:
		default: // it looks at the newest deadline anyway
		}
	case holdfast.EventError:
		r.failure.Store(&e.Err)
	}
}

// warnNested says so if the lock is held by the run whose job we are part of. It is no error:
// we may be in the background, and that job end before us.
func (r *runner) warnNested() {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	info, err := r.client.Load().Inspect(ctx, r.name)
	if err != nil {
		return // the lock call says so, if it lasts
	}
	for _, h := range info.Holders {
		if h.ID.String() == os.Getenv("HOLDFAST_ID") {
			r.report.tell(event{Event: "nested", Holders: holdersJSON([]holdfast.Holder{h})},
				"waiting for %q, which the job holds that this is part of: neither goes on if it waits for us", r.name)
		}
	}
}

// takeLock waits for the lock. Without a lease the exit code is final.
func (r *runner) takeLock() int {
	r.renewed = make(chan struct{}, 1)
	if !r.quiet && r.report.plain {
		r.report.status = newStatusLine(r.name)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	begin := time.Now()
	type result struct {
		lease *holdfast.Lease
		err   error
	}
	results := make(chan result, 1)
	go func() {
		st, err := r.want.store.open(ctx)
		if err != nil {
			results <- result{err: err}
			return
		}
		c, err := holdfast.New(st, holdfast.WithObserver(r.observe))
		if err != nil {
			results <- result{err: err}
			return
		}
		r.store = st
		r.client.Store(c)
		lease, err := r.take(ctx, c)
		if err == nil && time.Until(lease.Deadline()) < leaseTime(r.ttl)/2 {
			// A store may grant less to who waited. A job needs time to end in, and since
			// when we hold is counted back from the deadline. If it fails the lease tells.
			lease.Renew(ctx)
		}
		results <- result{lease, err}
	}()

	draw := new(time.Ticker)
	if r.report.status != nil {
		draw = time.NewTicker(statusDraw)
		defer draw.Stop()
	}
	var ended *signalled
	for {
		select {
		case sig := <-r.signals:
			if n, ends := job.Ends(sig); ends && ended == nil {
				ended = &signalled{n}
				cancel(ended)
			} else if ends { // twice: somebody is in a hurry
				os.Exit(exitSignal + n)
			}
		case <-draw.C:
			r.report.drawStatus(ctx, r.client.Load())
		case res := <-results:
			if clear := r.report.clearStatus(); clear != "" {
				r.report.write(os.Stderr, []byte(clear))
			}
			r.lease = res.lease
			switch {
			case ended != nil:
				return r.leave(ended)
			case res.err != nil:
				return r.noLock(res.err, time.Since(begin))
			}
			r.failure.Store(nil)
			waited := time.Since(begin)
			end := r.lease.Deadline()
			r.since = end.Add(-leaseTime(r.ttl))
			if r.maxHoldSet {
				r.since = end.Add(-min(leaseTime(r.ttl), r.maxHold))
			}
			r.report.note(event{Event: "acquired", Token: r.lease.Token(), ID: r.lease.ID().String(), Waited: seconds(waited), End: &end},
				"got %q after %s, token %d", r.name, waited.Round(time.Microsecond), r.lease.Token())
			return 0
		}
	}
}

// leave ends a wait that a signal ended. The job has not begun, and will not.
func (r *runner) leave(by *signalled) int {
	r.undo()
	code := exitSignal + by.number
	sig := syscall.Signal(by.number)
	r.report.note(event{Event: "interrupted", Signal: job.SignalName(sig), Code: &code}, "%s: left the queue of %q", job.SignalName(sig), r.name)
	if sig == syscall.SIGINT && job.Foreground() {
		r.dieOf = sig
	}
	return code
}

// undo gives back a lock under which nothing was done, and so without --at-least.
func (r *runner) undo() {
	if r.lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hurryTime)
	defer cancel()
	r.store.Release(ctx, r.name, r.lease.ID(), store.Keep{}) // if that fails, cleanUp tries it as well
	r.lease = nil
}

// noLock says why there is no lock.
func (r *runner) noLock(err error, waited time.Duration) int {
	code, text := explain(err, r.name)
	var held *holdfast.HeldError
	if !errors.As(err, &held) {
		r.report.tell(event{Event: "failed", Code: &code}, "%s", text)
		return code
	}
	code = r.busyCode
	if r.busyOK {
		code = 0
	}
	busy := event{Event: "busy", Code: &code, Waited: seconds(waited), Holders: holdersJSON(held.Holders), Place: held.Place, Waiters: held.Waiters}
	if r.busyOK {
		r.report.note(busy, "%s", text)
	} else {
		r.report.tell(busy, "%s", text)
	}
	return code
}

// hurryTime is how long a store gets to hear that we are done, if not much depends on it.
const hurryTime = time.Second

// cleanUp gives back what is left, unless somebody is in a hurry.
func (r *runner) cleanUp() {
	if r.store == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		r.client.Load().Close()
		r.store.Close()
		close(done)
	}()
	var enough <-chan time.Time
	if r.hurry {
		enough = time.After(hurryTime)
	}
	for {
		select {
		case <-done:
			return
		case <-enough:
			return
		case sig := <-r.signals:
			if _, ends := job.Ends(sig); ends {
				return
			}
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
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
	*jobOptions
	report  *reporter
	signals chan os.Signal

	client  atomic.Pointer[holdfast.Client]
	store   *ttlStore
	lease   *holdfast.Lease
	since   time.Time // from when the lock counts: when it was asked for with success
	renewed chan struct{}
	once    *onceCall             // nil but for holdfast once
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
				"waiting for %q, which is held by the job that started this command: if the job waits for this command, neither can continue", r.name)
		}
	}
}

// acquireLock waits for the lock. Without a lease the exit code is final.
func (r *runner) acquireLock() int {
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
		st, err := r.jobOptions.store.open(ctx)
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
		var lease *holdfast.Lease
		if r.once != nil {
			lease, err = r.once.acquire(ctx, c, &r.lockOptions)
		} else {
			lease, err = r.acquire(ctx, c)
		}
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
			r.useGranted()
			r.since = r.lease.Deadline().Add(-leaseTime(r.ttl))
			end := r.deadline()
			r.report.note(event{Event: "acquired", Token: r.lease.Token(), ID: r.lease.ID().String(), Waited: seconds(waited), End: &end},
				"got %q after %s, token %d", r.name, waited.Round(time.Microsecond), r.lease.Token())
			return 0
		}
	}
}

// useGranted goes on with the TTL that the store granted, if it is less than was asked for.
func (r *runner) useGranted() {
	granted := r.store.ttl()
	less := shortenedTTL(r.ttl, granted)
	if less == "" {
		return
	}
	r.ttl = granted
	if r.grace >= granted/2 { // else the job would be ended while the lock can still be renewed
		r.grace = defaultGrace(granted)
		less += fmt.Sprintf(", so the job is asked to end %v before the lock is lost", r.grace.Round(time.Millisecond))
	}
	r.report.tell(event{Event: "shortened", TTL: seconds(granted)}, "%s", less)
}

// deadline is when the job must have ended, as things are: the lock is lost then, or it was
// held for as long as it may be.
func (r *runner) deadline() time.Time {
	end := r.lease.Deadline()
	if r.maxHold > 0 && r.onLost != lostWarn {
		end = earlier(end, r.since.Add(r.maxHold))
	}
	return end
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
	if errors.Is(err, holdfast.ErrDone) {
		code = 0
		r.report.note(event{Event: "done", Code: &code}, "%s", text)
		return code
	}
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
		if r.once != nil {
			r.once.finish(false) // if it was not before
		}
		if r.lease != nil {
			r.lease.Unlock(context.Background()) // with --at-least, unlike Close
		}
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

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-lock/holdfast/store"
)

// A runner is one run, from waiting for the lock to its release.
type runner struct {
	*jobOptions
	report  *reporter
	signals chan os.Signal

	client  *connection
	waiting context.Context // ends with the wait for the lock
	lease   *holdfast.Lease
	since   time.Time             // when the successful request for the lock was sent
	renewed chan struct{}         // receives after a renewal
	once    *onceCall             // nil except for holdfast once
	failure atomic.Pointer[error] // of the last renewal; nil if it succeeded
	dieOf   syscall.Signal        // the signal with which holdfast must end itself, or 0
	used    bool                  // a job may have run under the lease
	hurry   bool                  // the store has failed, or signals came, so do not wait long
}

// observe reports last, because a message that is not read must not delay the rest.
func (r *runner) observe(e holdfast.Event) {
	switch e.Kind {
	case holdfast.EventWaiting:
		go r.explainWait(r.waiting)
		r.report.note(event{Event: "waiting"}, "waiting for %q", r.name)
	case holdfast.EventRenewed:
		r.failure.Store(nil)
		select {
		case r.renewed <- struct{}{}:
		default: // the receiver reads the newest deadline
		}
		end := time.Now().Add(e.Left)
		r.report.emit(event{Event: "renewed", Token: e.Token, Slack: seconds(e.Slack), End: &end})
	case holdfast.EventError:
		r.failure.Store(&e.Err)
		r.report.note(event{Event: "error", Token: e.Token}, "%v; retrying", e.Err)
	}
}

// waitDelay is how long a wait must last before it is explained.
const waitDelay = 300 * time.Millisecond

// explainWait shows on a terminal what holdfast waits for. It also warns if the lock is held by the
// run whose job started this process. That is not an error: this process may run in the background,
// and the job may end before it.
func (r *runner) explainWait(ctx context.Context) {
	select {
	case <-time.After(waitDelay):
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := r.client.Inspect(ctx, r.name)
	if err != nil {
		return // if the store keeps failing, the lock call returns the error
	}
	if !r.quiet && r.report.plain && tty.IsTerminal(os.Stderr) {
		held := &holdfast.HeldError{Name: r.name, Holders: info.Holders, Waiters: len(info.Waiters)}
		if i := slices.IndexFunc(info.Waiters, func(w holdfast.Waiter) bool { return w.Owner == r.client.Owner() }); i >= 0 {
			held.Place, held.Waiters = i+1, len(info.Waiters)-1
		}
		r.report.say("waiting: " + describeHeld(held))
	}
	for _, h := range info.Holders {
		if h.ID.String() == os.Getenv("HOLDFAST_ID") && os.Getenv("HOLDFAST_NAME") == r.name {
			r.report.tell(event{Event: "nested", Holders: holdersJSON([]holdfast.Holder{h})},
				"waiting for %q, which is held by the job that started this command: if the job waits for this command, neither can continue", r.name)
		}
	}
}

// acquireLock waits for the lock and sets r.lease, or returns the exit code.
func (r *runner) acquireLock() int {
	r.renewed = make(chan struct{}, 1)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	r.waiting = ctx
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- r.connectAndAcquire(ctx) }()

	var ended *signalled
	for {
		select {
		case sig := <-r.signals:
			if n, ends := job.Ends(sig); ends && ended == nil {
				ended = &signalled{n}
				cancel(ended)
			} else if ends && !r.hurry { // systemd sends two at once, so give the store time to learn of the end
				r.hurry = true
				defer time.AfterFunc(hurryTime, func() { os.Exit(exitSignal + ended.number) }).Stop()
			}
		case err := <-done:
			switch {
			case ended != nil:
				return r.leave(ended)
			case err != nil:
				return r.noLock(err, time.Since(begin))
			}
			r.failure.Store(nil)
			waited := time.Since(begin)
			r.useGranted()
			end := wall(r.deadline())
			r.report.note(event{Event: "acquired", Token: r.lease.Token(), ID: r.lease.ID().String(), Waited: seconds(waited), End: &end},
				"acquired %q after %s, token %d", r.name, waited.Round(time.Microsecond), r.lease.Token())
			return 0
		}
	}
}

// connectAndAcquire sets r.client, and r.lease if it gets the lock.
func (r *runner) connectAndAcquire(ctx context.Context) (err error) {
	if r.client, err = r.store.connect(ctx, holdfast.WithObserver(r.observe)); err != nil {
		return err
	}
	if r.once != nil {
		r.lease, err = r.once.acquire(ctx, r.client.Client, &r.lockOptions)
	} else {
		r.lease, err = r.acquire(ctx, r.client.Client)
	}
	if err == nil && r.client.store.ttl() < r.ttl {
		// A store may grant a waiter a shorter TTL until its first renewal. A renewal now shows which
		// TTL the store really grants. If it fails, the job begins with the remaining time.
		r.lease.Renew(ctx)
	}
	return err
}

// useGranted sets r.since, and adopts the TTL that the store granted, if it is shorter than requested.
func (r *runner) useGranted() {
	granted := r.client.store.ttl()
	r.since = r.lease.Deadline().Add(-leaseTime(granted))
	text := shortenedTTL(r.ttl, granted)
	if text == "" {
		return
	}
	r.ttl = granted
	if r.grace >= granted/2 { // otherwise the job would be ended while the lock can still be renewed
		r.grace = defaultGrace(granted)
		text += fmt.Sprintf(", so the job is asked to end %v before the lock is lost", r.grace.Round(time.Millisecond))
	}
	r.report.tell(event{Event: "shortened", TTL: seconds(granted)}, "%s", text)
}

// deadline returns when the job must have ended: when the lock is lost, or --max-hold is over.
func (r *runner) deadline() time.Time {
	end := r.lease.Deadline()
	if r.maxHold > 0 && r.onLost != lostWarn {
		end = earlier(end, r.since.Add(r.maxHold))
	}
	return end
}

// leave leaves the queue after a signal. The job was not started.
func (r *runner) leave(by *signalled) int {
	code := exitSignal + by.number
	sig := syscall.Signal(by.number)
	r.report.note(event{Event: "interrupted", Signal: job.SignalName(sig), Code: &code}, "%s: left the queue of %q", job.SignalName(sig), r.name)
	if sig == syscall.SIGINT && job.Foreground() {
		r.dieOf = sig
	}
	return code
}

// release releases the lock without --min-hold, unless that was done before.
func (r *runner) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hurryTime)
	defer cancel()
	if err := r.client.store.Release(ctx, r.name, r.lease.ID(), store.Keep{}); !errors.Is(err, holdfast.ErrNotHeld) {
		return err
	}
	return nil
}

// noLock reports why the lock was not acquired, and returns the exit code.
func (r *runner) noLock(err error, waited time.Duration) int {
	code, text := explain(err, r.name)
	e, report := event{Event: "failed", Code: &code}, r.report.tell
	var held *holdfast.HeldError
	switch {
	case errors.Is(err, holdfast.ErrDone):
		e.Event, code, report = "done", 0, r.report.note
	case errors.As(err, &held):
		e.Event, code, e.Waited = "busy", r.busyCode, seconds(waited)
		e.Holders, e.Place, e.Waiters = holdersJSON(held.Holders), held.Place, held.Waiters
		if r.busyOK {
			code, report = 0, r.report.note
		}
	}
	report(e, "%s", text)
	return code
}

// hurryTime limits how long the end of a run waits for a store whose reply is not important, or
// after a further signal.
const hurryTime = time.Second

// cleanUp releases the lock if it is still held, and closes the store. A signal makes it hurry.
func (r *runner) cleanUp() {
	if r.client == nil {
		return
	}
	ctx, done := context.WithCancel(context.Background())
	go func() {
		defer done()
		if r.once != nil {
			r.once.finish(false) // has no effect if it was called before
		}
		if r.used {
			r.lease.Unlock(ctx) // it retries, which Close does not
		}
		if r.used || r.lease == nil || retry(ctx, r.release) == nil {
			r.client.Client.Close() // it would keep an unused lock closed for --min-hold
		}
		r.client.store.Close()
	}()
	if r.hurry {
		time.AfterFunc(hurryTime, done)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-r.signals:
			if _, ends := job.Ends(sig); ends {
				time.AfterFunc(hurryTime, done)
			}
		}
	}
}

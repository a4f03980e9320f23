package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

// pollEnd is the interval at which holdfast checks whether all processes of the job have ended.
const pollEnd = 20 * time.Millisecond

// A holding is a job that runs under a lease.
type holding struct {
	*runner
	command string
	job     *job.Job
	margin  time.Duration
	pending []os.Signal // signals to forward when the job has started
	started bool
	failed  error      // why the job could not be executed
	ended   *job.Event // how its first process ended
	lost    error      // why the job has to end; nil while the lock is held
	killAt  time.Time  // when to kill it, if lost is set
	killed  bool
}

// holdLock runs the job and returns the exit code.
func (r *runner) holdLock(path string, args []string) int {
	h := &holding{runner: r, command: args[0], margin: killMargin(r.ttl)}
	if r.maxHold > 0 {
		h.margin = killMargin(min(r.ttl, r.maxHold))
	}
	spec := job.Spec{Path: path, Args: args, Env: jobEnv(r.lease, r.deadline(), r.client.Owner()), Mute: r.quiet || !r.report.plain}
	if r.onLost != lostWarn {
		spec.Kill = h.guardKill()
		spec.Spare = r.lease.Deadline().Sub(spec.Kill) // or longer, after a renewal
	}
	var err error
	if h.job, err = job.Start(spec, r.signals); err != nil {
		code := exitNotExec
		r.report.tell(event{Event: "failed", Code: &code}, "%v; the job was not started", err)
		return code
	}
	for len(r.signals) > 0 { // a signal that arrives here ends the run, and the job never starts
		if n, ends := job.Ends(<-r.signals); ends {
			h.job.Abandon()
			return r.leave(&signalled{n})
		}
	}
	if err := r.lease.Err(); err != nil {
		h.job.Abandon()
		code, text := explain(err, r.name)
		r.report.tell(event{Event: "lost", Code: &code}, "%s; the job was not started", text)
		return code
	}
	r.report.flush(startFlush)
	h.used = true
	h.job.Release()
	h.loop()
	return h.finish()
}

func (h *holding) loop() {
	done := h.lease.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !h.over() {
		timer.Reset(time.Until(h.next()))
		select {
		case e := <-h.job.Events:
			h.jobEvent(e)
		case sig := <-h.signals:
			if h.started {
				h.job.Forward(sig)
			} else {
				h.pending = append(h.pending, sig)
			}
		case <-h.renewed:
			h.job.Extend(h.guardKill())
		case <-done:
			done = nil
			h.leaseEnded()
		case <-timer.C:
			h.look()
		}
	}
}

func (h *holding) jobEvent(e job.Event) {
	switch e.Kind {
	case job.Started:
		h.started = true
		h.report.emit(event{Event: "started", Token: h.lease.Token()})
		for _, sig := range h.pending {
			h.job.Forward(sig)
		}
		h.pending = nil
	case job.Failed:
		h.failed, h.used = e.Err, false
	case job.Stopped:
		h.job.Suspend(e.Signal, func() {
			h.report.tell(event{Event: "stopped", Signal: job.SignalName(e.Signal)},
				"stopped; %q is not renewed while the job is stopped: unless you continue it, the lock is lost in %s and the job is killed", h.name, short(time.Until(h.killTime())))
			h.report.flush(flushTime)
		})
	case job.Unguarded:
		h.report.tell(event{Event: "unguarded"}, "the guard of the job was killed: if holdfast is killed too, the job continues without the lock")
	case job.Overdue:
		// Holdfast was stopped or delayed, so the guard has killed the job, even if the lease is valid.
		if h.lost == nil {
			h.lost = h.whyNotRenewed()
		}
		h.killed = true
	case job.Ended:
		h.ended = &e
	}
}

// killTime returns when the job must be killed, unless the lock is renewed.
func (h *holding) killTime() time.Time { return h.deadline().Add(-h.margin) }

// guardKill returns when the guard kills the job, if holdfast has not done so.
func (h *holding) guardKill() time.Time { return h.deadline().Add(-h.margin / 2) }

// endTime returns when the job is asked to end, unless the lock is renewed.
func (h *holding) endTime() time.Time {
	if h.onLost == lostTerm && h.grace > h.margin {
		return h.deadline().Add(-h.grace)
	}
	return h.killTime()
}

// next returns when to call look again.
func (h *holding) next() time.Time {
	switch {
	case h.onLost == lostWarn: // look does nothing
		return time.Now().Add(time.Hour)
	case h.lost == nil:
		return h.endTime()
	case h.ended != nil || h.killed:
		return time.Now().Add(pollEnd)
	}
	return h.killAt
}

// look asks the job to end, or kills it, when it is time.
func (h *holding) look() {
	now := time.Now()
	if h.onLost == lostWarn {
		return
	}
	if h.lost == nil && !now.Before(h.endTime()) {
		h.end(h.whyNotRenewed(), h.killTime())
	}
	if h.lost != nil && !h.killed && !now.Before(h.killAt) {
		h.kill()
	}
}

// whyNotRenewed returns why the job has to end before the deadline.
func (h *holding) whyNotRenewed() error {
	if h.maxHold > 0 && h.deadline().Before(h.lease.Deadline()) {
		return fmt.Errorf("it was held for the %v of --max-hold", h.maxHold)
	}
	if failure := h.failure.Load(); failure != nil {
		return fmt.Errorf("it could not be renewed in time: %w", *failure)
	}
	return errors.New("it could not be renewed in time")
}

func (h *holding) leaseEnded() {
	err := h.lease.Err()
	switch {
	case h.onLost == lostWarn:
		h.lost = reason(err)
		h.report.tell(event{Event: "lost", Token: h.lease.Token()}, "lost %q: %v; the job continues without it (--on-lost warn)", h.name, h.lost)
	case h.lost == nil:
		// Either the store reported the loss, or holdfast was stopped until after the deadline.
		kill := time.Now().Add(h.grace)
		if h.onLost == lostKill {
			kill = time.Now()
		}
		h.end(reason(err), earlier(kill, h.killTime()))
		h.look()
	}
}

// reason returns the part of the error of a lost lease that says why it was lost. Client.Once adds
// errFailed to it.
func reason(err error) error {
	if _, why, ok := strings.Cut(err.Error(), "lost: "); ok {
		return errors.New(strings.TrimSuffix(why, "; "+errFailed.Error()))
	}
	return err
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

// end asks the job to end, and sets when it is killed.
func (h *holding) end(why error, kill time.Time) {
	h.lost, h.killAt = why, kill
	if h.onLost == lostKill || !time.Now().Before(kill) {
		return
	}
	h.job.Terminate(h.signal)
	h.report.tell(event{Event: "ending", Token: h.lease.Token(), Signal: job.SignalName(h.signal)},
		"losing %q: %v; sent %s to the job, SIGKILL follows in %s", h.name, why, job.SignalName(h.signal), short(time.Until(kill)))
}

func (h *holding) kill() {
	h.killed = true
	if err := h.job.Kill(); err != nil {
		h.report.tell(event{Event: "error"}, "%v", err)
		h.ended = &job.Event{Kind: job.Ended, Code: exitSignal + int(syscall.SIGKILL), Signal: syscall.SIGKILL} // do not wait for it
	}
	h.report.emit(event{Event: "killed", Token: h.lease.Token()})
}

// over reports whether there is nothing left to wait for.
func (h *holding) over() bool {
	return h.ended != nil && (h.lost == nil || h.onLost == lostWarn || h.killed || !h.job.Alive())
}

// finish releases the lock, reports how the job ended, and returns the exit code.
func (h *holding) finish() int {
	if h.lost == nil {
		h.lost = h.lostUnseen()
	}
	hadTerminal := h.job.Close(h.ended.Signal != 0 || h.lost != nil)
	code, how := h.ended.Code, fmt.Sprintf("the job exited with %d", h.ended.Code)
	if h.ended.Signal != 0 {
		how = "the job was ended by " + h.signalName()
	}
	if h.lost != nil {
		return h.sayLost(how)
	}
	if h.failed != nil {
		return cannotRun(h.report, h.command, h.failed)
	}
	err := h.unlock(code == 0)
	h.hurry = err != nil
	switch {
	case errors.Is(err, holdfast.ErrLost):
		h.lost = reason(err)
		return h.sayLost(how)
	case err != nil && h.once != nil && code == 0:
		code, text := explain(err, h.name)
		h.report.tell(event{Event: "error", Code: &code}, "%s, but this could not be recorded, so it may run again: %s", how, text)
		return code
	case err != nil:
		h.report.tell(event{Event: "error", Code: &code, Signal: h.signalName()}, "%q could not be released, and expires within %v: %v", h.name, h.ttl, err)
	default:
		h.report.note(event{Event: "released", Token: h.lease.Token(), Code: &code, Signal: h.signalName()}, "%s; released %q", how, h.name)
	}
	if h.ended.Signal == syscall.SIGINT && (hadTerminal || job.Foreground()) { // by Ctrl-C
		h.dieOf = syscall.SIGINT
	}
	return code
}

// unlock releases the lock, and for holdfast once records a success.
func (h *holding) unlock(success bool) error {
	if h.once == nil {
		return h.lease.Unlock(context.Background())
	}
	err := h.once.finish(success)
	if err == nil && !success {
		err = h.release(context.Background()) // Client.Once does not say whether it could do that
	}
	return err
}

// lostUnseen detects a loss that was not reported yet: the deadline has passed and its timer is late,
// or the guard killed the job while holdfast was stopped and its message has not arrived.
func (h *holding) lostUnseen() error {
	if err := h.lease.Err(); errors.Is(err, holdfast.ErrLost) {
		return reason(err)
	}
	if h.ended.Signal == syscall.SIGKILL && h.onLost != lostWarn && !time.Now().Before(h.killTime()) {
		return h.whyNotRenewed()
	}
	return nil
}

func (h *holding) signalName() string {
	if h.ended.Signal == 0 {
		return ""
	}
	return job.SignalName(h.ended.Signal)
}

// sayLost reports that the job lost its lock, and returns the exit code. That of the job does not
// matter: a job that may have overlapped with another has not succeeded.
func (h *holding) sayLost(how string) int {
	code, advice := exitLost, "check the store, then start the job again"
	if text := h.lost.Error(); strings.Contains(text, "--max-hold") || strings.Contains(text, "MaxHold is over") {
		advice = "allow it more time with --max-hold, or make the job shorter"
	}
	h.report.tell(event{Event: "lost", Token: h.lease.Token(), Code: &code, Signal: h.signalName()},
		"lost %q: %v; %s; %s", h.name, h.lost, how, advice)
	h.hurry = true // cleanUp releases the lock, if the store answers
	return code
}

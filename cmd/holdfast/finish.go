package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
)

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
		h.undo()
		return cannotRun(h.report, h.command, h.failed)
	}
	if h.once != nil {
		if err := h.once.finish(code == 0); err != nil {
			code, text := explain(err, h.name)
			h.hurry = true
			h.report.tell(event{Event: "error", Code: &code}, "%s, but this could not be recorded, so it may run again: %s", how, text)
			return code
		}
	}
	err := h.lease.Unlock(context.Background())
	switch {
	case h.once != nil && errors.Is(err, holdfast.ErrNotHeld): // Client.Once has released it
	case errors.Is(err, holdfast.ErrLost):
		h.lost = reason(err)
		return h.sayLost(how)
	case err != nil:
		h.hurry = true
		h.report.tell(event{Event: "error"}, "%q could not be released, and expires within %v: %v", h.name, h.ttl, err)
	}
	if h.ended.Signal == syscall.SIGINT && (hadTerminal || job.Foreground()) { // by Ctrl-C
		h.dieOf = syscall.SIGINT
	}
	h.report.note(event{Event: "released", Token: h.lease.Token(), Code: &code, Signal: h.signalName()}, "%s; released %q", how, h.name)
	return code
}

// lostUnseen detects a loss that was not reported yet: the deadline has passed and its timer
// is late, or the guard killed the job while holdfast was stopped and its message has not
// arrived.
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
	if h.overMaxHold() {
		advice = "allow it more time with --max-hold, or make the job shorter"
	}
	h.report.tell(event{Event: "lost", Token: h.lease.Token(), Code: &code, Signal: h.signalName()},
		"lost %q: %v; %s; %s", h.name, h.lost, how, advice)
	h.hurry = true // cleanUp releases the lock, if the store answers
	return code
}

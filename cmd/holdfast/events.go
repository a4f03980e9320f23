package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// An event is one line of --json.
type event struct {
	Time    time.Time    `json:"time"`
	Event   string       `json:"event"`
	Name    string       `json:"name"`
	ID      string       `json:"id,omitempty"`
	Token   int64        `json:"token,omitempty"`
	End     *time.Time   `json:"deadline,omitempty"` // when the lock is lost unless it is renewed
	Waited  *float64     `json:"waited_seconds,omitempty"`
	Held    *float64     `json:"held_seconds,omitempty"`
	Slack   *float64     `json:"slack_seconds,omitempty"`
	Code    *int         `json:"code,omitempty"`
	Signal  string       `json:"signal,omitempty"`
	Holders []holderJSON `json:"holders,omitempty"`
	Place   int          `json:"place,omitempty"`
	Waiters int          `json:"waiters,omitempty"`
	Message string       `json:"message,omitempty"`
}

// A reporter tells what run does: in sentences on stderr, in JSON lines, or not at all. It
// never writes to stdout, which is the job's.
type reporter struct {
	name    string
	quiet   bool
	verbose bool
	json    io.Writer // nil without --json
	plain   bool      // sentences go to stderr

	mu     sync.Mutex
	status *statusLine
}

// seconds makes a duration an optional number.
func seconds(d time.Duration) *float64 {
	s := d.Round(time.Microsecond).Seconds()
	return &s
}

// emit writes a JSON line, if asked for.
func (r *reporter) emit(e event) {
	if r.json == nil {
		return
	}
	e.Time, e.Name = time.Now(), r.name
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.json.Write(append(line, '\n'))
}

// tell says what matters, as an event and as a sentence.
func (r *reporter) tell(e event, format string, args ...any) {
	e.Message = fmt.Sprintf(format, args...)
	r.emit(e)
	if !r.quiet {
		r.say(e.Message)
	}
}

// note says what only those want to know who asked for it.
func (r *reporter) note(e event, format string, args ...any) {
	e.Message = fmt.Sprintf(format, args...)
	r.emit(e)
	if r.verbose {
		r.say(e.Message)
	}
}

func (r *reporter) say(text string) {
	if !r.plain {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.clear()
	fmt.Fprintln(os.Stderr, "holdfast: "+clean(text))
}

// observe turns the client's events into ours.
func (r *reporter) observe(e holdfast.Event) {
	switch e.Kind {
	case holdfast.EventWaiting:
		r.note(event{Event: "waiting"}, "waiting for %q", r.name)
	case holdfast.EventRenewed:
		end := time.Now().Add(e.Slack)
		r.emit(event{Event: "renewed", Token: e.Token, Slack: seconds(e.Slack), End: &end})
	case holdfast.EventError:
		r.note(event{Event: "error", Token: e.Token}, "%v; trying again", e.Err)
	}
}

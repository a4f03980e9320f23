package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/core/printable"
)

// An event is one line of --json.
type event struct {
	Time    time.Time    `json:"time"`
	Event   string       `json:"event"`
	Name    string       `json:"name"`
	ID      string       `json:"id,omitempty"`
	Token   int64        `json:"token,omitempty"`
	End     *time.Time   `json:"deadline,omitempty"` // when the lock is lost unless it is renewed
	TTL     *float64     `json:"ttl_seconds,omitempty"`
	Waited  *float64     `json:"waited_seconds,omitempty"`
	Held    *float64     `json:"held_seconds,omitempty"`
	Slack   *float64     `json:"slack_seconds,omitempty"`
	Code    *int         `json:"code,omitempty"`
	Signal  string       `json:"signal,omitempty"`
	Holders []holderJSON `json:"holders,omitempty"`
	Place   int          `json:"place,omitempty"`
	Waiters int          `json:"waiters,omitempty"`
	Dropped int64        `json:"dropped,omitempty"` // number of events that were not written
	Message string       `json:"message,omitempty"`
}

const (
	// reportLines limits how many lines wait to be written. A renewal is one line, so this
	// is enough for hours at the default TTL.
	reportLines = 1024

	// flushTime limits how long holdfast waits for a reader before it exits or stops.
	flushTime = time.Second

	// startFlush is the limit before the job starts. It keeps the lines in order for a reader
	// that keeps up.
	startFlush = 100 * time.Millisecond
)

// A reporter reports what run does, as messages on stderr and as JSON lines. It never writes
// to stdout, which belongs to the job.
//
// Reporting never blocks: a goroutine writes the lines. If they are not read, lines are
// dropped and counted. A job must not be killed because its events are not read.
type reporter struct {
	name    string
	quiet   bool
	verbose bool
	json    io.Writer // nil without --json
	plain   bool      // messages go to stderr

	lines   chan reportLine
	dropped atomic.Int64

	mu     sync.Mutex
	status *statusLine
}

// A reportLine is a line to write, or a request to close a channel when all lines before it
// are written.
type reportLine struct {
	to      io.Writer
	text    []byte
	written chan<- struct{}
}

func newReporter(name string) *reporter {
	r := &reporter{name: name, plain: true, lines: make(chan reportLine, reportLines)}
	go r.writeLines()
	return r
}

func (r *reporter) writeLines() {
	for l := range r.lines {
		if l.to != nil {
			l.to.Write(l.text)
		}
		if len(r.lines) == 0 || l.written != nil {
			r.writeDropped()
		}
		if l.written != nil {
			close(l.written)
		}
	}
}

// writeDropped reports dropped lines. Only writeLines calls it.
func (r *reporter) writeDropped() {
	n := r.dropped.Swap(0)
	if n == 0 {
		return
	}
	text := fmt.Sprintf("%d messages were dropped because they were not read", n)
	if r.json != nil {
		r.json.Write(r.marshal(event{Event: "dropped", Dropped: n, Message: text}))
	} else {
		fmt.Fprintln(os.Stderr, "holdfast: "+text)
	}
}

// write queues a line, or drops it if too many are queued.
func (r *reporter) write(to io.Writer, text []byte) {
	select {
	case r.lines <- reportLine{to: to, text: text}:
	default:
		r.dropped.Add(1)
	}
}

// flush waits until all lines are written, up to a limit.
func (r *reporter) flush(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	written := make(chan struct{})
	select {
	case r.lines <- reportLine{written: written}:
	case <-timer.C:
		return
	}
	select {
	case <-written:
	case <-timer.C:
	}
}

func (r *reporter) marshal(e event) []byte {
	e.Time, e.Name = time.Now(), r.name
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // an event can always be encoded
	}
	return append(printable.EscapeJSON(line), '\n')
}

// seconds returns a duration for an optional field.
func seconds(d time.Duration) *float64 {
	s := d.Round(time.Microsecond).Seconds()
	return &s
}

// emit writes a JSON line if JSON lines were requested.
func (r *reporter) emit(e event) {
	if r.json != nil {
		r.write(r.json, r.marshal(e))
	}
}

// tell reports an event, as a JSON line and as a message.
func (r *reporter) tell(e event, format string, args ...any) {
	e.Message = fmt.Sprintf(format, args...)
	r.emit(e)
	if !r.quiet {
		r.say(e.Message)
	}
}

// note is like tell, but prints the message only with --verbose.
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
	r.write(os.Stderr, []byte(r.clearStatus()+"holdfast: "+clean(text)+"\n"))
}

// drawStatus draws the status line.
func (r *reporter) drawStatus(ctx context.Context, c *holdfast.Client) {
	r.mu.Lock()
	text := r.status.draw(ctx, c)
	r.mu.Unlock()
	if text != "" && len(r.lines) == 0 { // otherwise the terminal is slow, or stopped by Ctrl-S
		r.write(os.Stderr, []byte(text))
	}
}

// clearStatus returns the control sequence that removes the status line, if it is shown.
func (r *reporter) clearStatus() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.clear()
}

// observe reports events of the client.
func (r *reporter) observe(e holdfast.Event) {
	switch e.Kind {
	case holdfast.EventWaiting:
		r.note(event{Event: "waiting"}, "waiting for %q", r.name)
	case holdfast.EventRenewed:
		end := time.Now().Add(e.Left)
		r.emit(event{Event: "renewed", Token: e.Token, Slack: seconds(e.Slack), End: &end})
	case holdfast.EventError:
		r.note(event{Event: "error", Token: e.Token}, "%v; retrying", e.Err)
	}
}

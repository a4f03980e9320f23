package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

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
	Slack   *float64     `json:"slack_seconds,omitempty"`
	Code    *int         `json:"code,omitempty"`
	Signal  string       `json:"signal,omitempty"`
	Holders []holderJSON `json:"holders,omitempty"`
	Place   int          `json:"place,omitempty"`
	Waiters int          `json:"waiters,omitempty"`
	Message string       `json:"message,omitempty"`
}

const (
	reportLines = 1024                   // that wait; enough for hours at the default TTL, as a renewal is one line
	flushTime   = time.Second            // to wait for a reader before holdfast exits or stops
	startFlush  = 100 * time.Millisecond // before the job starts; keeps the lines in order for a reader that keeps up
)

// A reporter reports what run does, as messages on stderr and as JSON lines. It never writes to
// stdout, which belongs to the job. It never blocks: a goroutine writes the lines, and lines that are
// not read are dropped, because a job must not be killed for that.
type reporter struct {
	name    string
	quiet   bool
	verbose bool
	json    io.Writer // nil without --json
	plain   bool      // messages go to stderr

	lines chan func() // each writes a line
}

func newReporter(name string) *reporter {
	r := &reporter{name: name, plain: true, lines: make(chan func(), reportLines)}
	go func() {
		for write := range r.lines {
			write()
		}
	}()
	return r
}

// write queues a line, or drops it if too many are queued.
func (r *reporter) write(to io.Writer, text []byte) {
	select {
	case r.lines <- func() { to.Write(text) }:
	default:
	}
}

// flush waits until all lines are written, up to a limit.
func (r *reporter) flush(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	select {
	case r.lines <- cancel: // called when the lines before it are written
		<-ctx.Done()
	case <-ctx.Done():
	}
}

// seconds returns a duration for an optional field.
func seconds(d time.Duration) *float64 {
	s := d.Round(time.Microsecond).Seconds()
	return &s
}

func (r *reporter) emit(e event) {
	if r.json == nil {
		return
	}
	e.Time, e.Name = time.Now(), r.name
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // an event can always be encoded
	}
	r.write(r.json, append(printable.EscapeJSON(line), '\n'))
}

// tell reports an event, as a JSON line and as a message.
func (r *reporter) tell(e event, format string, args ...any) {
	r.report(e, !r.quiet, fmt.Sprintf(format, args...))
}

// note is like tell, but prints the message only with --verbose.
func (r *reporter) note(e event, format string, args ...any) {
	r.report(e, r.verbose, fmt.Sprintf(format, args...))
}

func (r *reporter) report(e event, say bool, message string) {
	e.Message = message
	r.emit(e)
	if say {
		r.say(message)
	}
}

func (r *reporter) say(text string) {
	if r.plain {
		r.write(os.Stderr, []byte("holdfast: "+clean(text)+"\n"))
	}
}

package holdfast

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// An Observer is told every event of a client, on the goroutine where it happens. It may
// be called by many goroutines at once and should return soon: the call that it tells of
// waits for it. It must not close the client. If it panics, that is logged.
type Observer func(Event)

// An Event is something that happened to a lock.
type Event struct {
	Kind    EventKind
	Name    string // as the caller wrote it, without the client's prefix
	Store   string // which kind of store, such as "redis"
	Mode    store.Mode
	Token   int64         // of the lease; 0 while there is none
	Waited  time.Duration // EventAcquired, EventHandedOver: since the call
	Held    time.Duration // of a lease: since it was acquired
	Slack   time.Duration // EventRenewed: what was left of the lease when the answer came
	Attempt int           // EventError while acquiring or releasing: failures so far
	Err     error         // EventLost, EventError
}

// EventKind is the kind of an Event.
type EventKind uint8

const (
	// EventWaiting: the call has to wait for its turn.
	EventWaiting EventKind = iota + 1
	// EventAcquired: the store granted the lock.
	EventAcquired
	// EventHandedOver: the lock came from another goroutine of this client.
	EventHandedOver
	// EventRenewed: the lease was extended.
	EventRenewed
	// EventLost: the lease ended before it was unlocked.
	EventLost
	// EventReleased: the lease was unlocked.
	EventReleased
	// EventError: the store failed; the client goes on trying or the call fails.
	EventError
)

// String returns a word for the kind, such as "acquired".
func (k EventKind) String() string {
	switch k {
	case EventWaiting:
		return "waiting"
	case EventAcquired:
		return "acquired"
	case EventHandedOver:
		return "handed over"
	case EventRenewed:
		return "renewed"
	case EventLost:
		return "lost"
	case EventReleased:
		return "released"
	case EventError:
		return "error"
	}
	return "unknown"
}

// event is an event of a lease.
func (l *Lease) event(kind EventKind) Event {
	return Event{Kind: kind, Name: l.Name(), Mode: l.Mode(), Token: l.token, Held: l.g.c.now() - l.since}
}

// observed is checked before an Event is made, so that nobody pays for what nobody sees.
func (c *Client) observed() bool { return c.set.observer != nil || c.set.logger != nil }

func (c *Client) emit(e Event) {
	e.Store = c.caps.Store
	// Whoever emits is in the middle of something: a panic here would leave it so.
	defer func() {
		if p := recover(); p != nil {
			logger := c.set.logger
			if logger == nil {
				logger = slog.Default()
			}
			logger.Error("holdfast: the observer panicked", "panic", p, "event", e.Kind.String(), "name", e.Name)
		}
	}()
	if c.set.observer != nil {
		c.set.observer(e)
	}
	if c.set.logger == nil {
		return
	}
	level := slog.LevelDebug
	if e.Kind == EventLost || e.Kind == EventError {
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if !c.set.logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 6)
	attrs = append(attrs, slog.String("name", e.Name), slog.String("mode", e.Mode.String()))
	if e.Token != 0 {
		attrs = append(attrs, slog.Int64("token", e.Token))
	}
	switch e.Kind {
	case EventAcquired, EventHandedOver:
		attrs = append(attrs, slog.Duration("waited", e.Waited))
	case EventRenewed:
		attrs = append(attrs, slog.Duration("slack", e.Slack))
	case EventReleased, EventLost:
		attrs = append(attrs, slog.Duration("held", e.Held))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	c.set.logger.LogAttrs(ctx, level, "holdfast: "+e.Kind.String(), attrs...)
}

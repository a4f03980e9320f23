package holdfast

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// An Observer is called for every event of a client, on a goroutine of its own. It may be called by
// many goroutines at once. It should return soon, because the call that caused the event waits for
// it. It must not close the client. If it panics, the panic is logged.
type Observer func(Event)

// An Event is something that happened to a lock.
type Event struct {
	Kind    EventKind
	Name    string        // as the caller wrote it, without the client's prefix
	Store   string        // kind of store, such as "redis"
	Mode    Mode          // as it was acquired, even after Downgrade
	ID      ID            // of the lease; zero while there is none
	Token   int64         // of the lease; 0 while there is none
	Waited  time.Duration // EventAcquired, EventHandedOver, EventGaveUp: since the call
	Queued  bool          // EventAcquired, EventHandedOver, EventGaveUp: this ends the wait that EventWaiting reported
	Standby bool          // EventWaiting, EventAcquired, EventHandedOver, EventGaveUp: the call is a Campaign, which usually waits for long
	Held    time.Duration // of a lease: since it was acquired
	Slack   time.Duration // EventRenewed: what was left until the old deadline when the reply arrived
	Term    time.Duration // EventRenewed: time from the previous renewal, or from the grant, to the old deadline
	Left    time.Duration // EventRenewed: time until the new deadline
	Attempt int           // EventError while acquiring or releasing: failures so far
	Err     error         // EventLost, EventError, EventGaveUp
	Reason  string        // EventLost: "expired", "gone" (the store no longer has the grant) or "max_hold"

	// Context is the context of the acquiring call, for EventWaiting, EventAcquired,
	// EventHandedOver and EventGaveUp. A trace can find its parent in it.
	Context context.Context
}

// EventKind is the kind of an Event.
type EventKind uint8

const (
	EventWaiting    EventKind = iota + 1 // a call has to wait for its turn
	EventAcquired                        // the store granted the lock
	EventHandedOver                      // another goroutine of this client handed the lock over
	EventRenewed                         // the lease was extended
	EventLost                            // the lease ended before it was unlocked
	EventReleased                        // the lease was unlocked
	EventError                           // the store failed; the client retries, or the call fails
	// EventGaveUp means that a call ended without the lock. Err matches ErrHeld if another has it,
	// ErrDone if Once found the work done, ErrUnavailable if the store failed, and the cause of a
	// context that ended. A call refused at once, for bad input, a context that ended or holds the
	// name, or Close, is not reported.
	EventGaveUp
	// EventLeaked means that the program dropped a Lease without Unlock and that it was garbage
	// collected. The client continues to renew it until the client is closed.
	EventLeaked
)

var kindWords = [...]string{"unknown", "waiting", "acquired", "handed over", "renewed", "lost", "released", "error", "gave up", "leaked"}

// String returns a word for the kind, such as "acquired".
func (k EventKind) String() string {
	if int(k) >= len(kindWords) {
		k = 0
	}
	return kindWords[k]
}

func (h *hold) event(kind EventKind) Event {
	return Event{Kind: kind, Name: h.name(), Mode: h.g.Mode, ID: h.g.ID, Token: h.token, Held: h.c.now() - h.since}
}

func (h *hold) lostEvent() Event {
	e := h.event(EventLost)
	e.Err = h.first.err()
	if lost := (*lostError)(nil); errors.As(e.Err, &lost) {
		e.Reason = lost.loss.Word
	}
	return e
}

// reportEnd tells the observer that a hold has ended. If the observer does not know yet that it was
// acquired, reportAcquired tells it later. If no call got the lock, the observer is told neither.
func (h *hold) reportEnd(e Event) {
	h.mu.Lock()
	reported := h.reported
	if !reported {
		h.end = e.Kind
	}
	h.mu.Unlock()
	if reported {
		h.c.emit(e)
	}
}

// reportAcquired tells the observer that a hold was acquired, and that it has ended if it has.
func (h *hold) reportAcquired(e Event) {
	e.ID, e.Token = h.g.ID, h.token
	h.c.emit(e)
	h.mu.Lock()
	end := h.end
	h.reported = true
	h.mu.Unlock()
	switch end {
	case EventLost:
		h.c.emit(h.lostEvent())
	case EventReleased:
		h.c.emit(h.event(EventReleased))
	}
}

// reportWaiting tells the observer once that a call has to wait.
func (c *Client) reportWaiting(ctx context.Context, cl *call) {
	if !cl.reported && c.observed() {
		c.emit(Event{Kind: EventWaiting, Name: cl.name, Mode: cl.Request.Mode, Standby: cl.standby, Context: ctx})
	}
	cl.reported = true
}

// reportTaken tells the observer how an acquiring call ended.
func (c *Client) reportTaken(ctx context.Context, cl *call, h *hold, handed bool, err error) {
	e := Event{Kind: EventAcquired, Name: cl.name, Mode: cl.Request.Mode, Waited: c.now() - cl.Begin, Queued: cl.reported, Standby: cl.standby, Err: err, Context: ctx}
	switch {
	case err != nil:
		e.Kind = EventGaveUp
	case handed:
		e.Kind = EventHandedOver
	}
	if h == nil {
		c.emit(e)
	} else {
		h.reportAcquired(e)
	}
}

// observed reports whether there is an observer or logger. Callers check it before making an Event.
func (c *Client) observed() bool { return c.set.observer != nil || c.set.logger != nil }

func (c *Client) emit(e Event) {
	e.Store = c.caps.Store
	if c.set.observer != nil {
		o := observation{client: c, event: e}
		o.done.Add(1)
		go o.run()
		o.done.Wait()
	}
	if c.set.logger != nil {
		c.log(&e)
	}
}

// An observation is a call of the observer. Neither a panic nor runtime.Goexit in the observer may
// leave the work of the client half done, and only a goroutine of its own contains Goexit.
type observation struct {
	client *Client
	event  Event
	done   sync.WaitGroup
}

func (o *observation) run() {
	defer o.done.Done()
	defer func() {
		if p := recover(); p != nil {
			logger := cmp.Or(o.client.set.logger, slog.Default())
			logger.Error("holdfast: the observer panicked", "panic", p, "event", o.event.Kind.String(), "name", o.event.Name)
		}
	}()
	o.client.set.observer(o.event)
}

// log logs an event: losses, failures and leaks as warnings, all others at debug level.
func (c *Client) log(e *Event) {
	ctx := context.Background()
	level := slog.LevelDebug
	if e.Kind == EventLost || e.Kind == EventError || e.Kind == EventLeaked {
		level = slog.LevelWarn
	}
	if !c.set.logger.Enabled(ctx, level) {
		return
	}
	suppressed := 0
	if level == slog.LevelWarn {
		var allowed bool
		if allowed, suppressed = c.warnings[e.Kind].allow(c.now()); !allowed {
			return
		}
	}
	attrs := make([]slog.Attr, 0, 6)
	attrs = append(attrs, slog.String("name", e.Name), slog.String("mode", e.Mode.String()))
	if e.Token != 0 {
		attrs = append(attrs, slog.Int64("token", e.Token))
	}
	switch e.Kind {
	case EventAcquired, EventHandedOver, EventGaveUp:
		attrs = append(attrs, slog.Duration("waited", e.Waited))
	case EventRenewed:
		attrs = append(attrs, slog.Duration("slack", e.Slack))
	case EventReleased, EventLost, EventLeaked:
		attrs = append(attrs, slog.Duration("held", e.Held))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	c.set.logger.LogAttrs(ctx, level, "holdfast: "+e.Kind.String(), attrs...)
}

// In each warnWindow, at most warnBurst warnings of each kind are logged, and the next one says how
// many were left out: a client with many locks must not flood the log when its store is down.
const (
	warnBurst  = 10
	warnWindow = 10 * time.Second
)

type warnings struct {
	mu  sync.Mutex
	n   int           // warnings in this window
	end time.Duration // end of this window
}

// allow reports whether the next warning may be logged, and how many were left out before it.
func (w *warnings) allow(now time.Duration) (allowed bool, suppressed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now >= w.end {
		suppressed = max(0, w.n-warnBurst)
		w.n, w.end = 0, now+warnWindow
	}
	w.n++
	return w.n <= warnBurst, suppressed
}

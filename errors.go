package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/internal/core/printable"
	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// Sentinel errors, for use with errors.Is. If an error of this package has a further cause, such
// as the error of a context or a store, it matches that cause as well.
var (
	// ErrHeld is returned when another holder has the name, or when earlier waiters are queued
	// for it. The error wraps a *HeldError, which says who holds the name.
	ErrHeld = errors.New("held")

	// ErrLost is returned when a lease ended before it was unlocked. Another may hold it now.
	ErrLost = errors.New("lost")

	// ErrDone is returned when Once finds that the work was already done.
	ErrDone = errors.New("already done")

	// ErrUnavailable is returned when the store cannot be reached or fails. It may have acted on
	// the request. A lock that it may have granted is released in the background.
	ErrUnavailable = errors.New("store unavailable")

	// ErrWouldDeadlock is returned when the context holds the name, so a wait would never end.
	ErrWouldDeadlock = errors.New("would deadlock")

	// ErrNotHeld is returned when there is nothing to unlock or break, or there is no leader.
	ErrNotHeld = store.ErrNotHeld

	// ErrUnsupported is returned when the store cannot do what was asked, and was not touched.
	ErrUnsupported = store.ErrUnsupported

	// ErrClosed is returned when the client was closed.
	ErrClosed = store.ErrClosed

	// ErrInvalid is returned when the input is bad. The store was not touched, except if the
	// error says that the name is in use in another way, such as with another limit, or by a version
	// of Holdfast that this program does not know.
	ErrInvalid = store.ErrInvalid
)

// A HeldError says who holds a name. It matches ErrHeld.
type HeldError struct {
	Name    string
	Holders []Holder // empty if the call only waits behind earlier waiters
	Place   int      // place in the queue of processes when the wait ended, 1 is next; 0 if not queued
	Waiters int      // how many other processes were queued
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Error describes the first holder, how long it has held the name, and when its lease ends.
func (e *HeldError) Error() string {
	var b strings.Builder
	if len(e.Holders) == 0 {
		b.WriteString("queued behind other waiters")
	} else {
		h := &e.Holders[0]
		switch h.State {
		case store.Done:
			fmt.Fprintf(&b, "closed: done by %s %s ago, kept for another %s", ownerText(h.Owner), short(h.Age), short(h.Left))
		case store.Cooling:
			fmt.Fprintf(&b, "in cool-down after release by %s, free in %s", ownerText(h.Owner), short(h.Left))
		default:
			fmt.Fprintf(&b, "held by %s for %s, %s left unless renewed", ownerText(h.Owner), short(h.Age), short(h.Left))
		}
		if h.Meta != "" {
			fmt.Fprintf(&b, " (%s)", printable.Escape(h.Meta))
		}
		if n := len(e.Holders) - 1; n > 0 {
			fmt.Fprintf(&b, ", and %d more", n)
		}
	}
	if e.Place > 0 {
		fmt.Fprintf(&b, ", place %d in the queue", e.Place)
	}
	return b.String()
}

func newHeldError(name string, r *store.Refusal) *HeldError {
	return &HeldError{Name: name, Holders: r.Holders, Place: r.Place, Waiters: r.Waiters}
}

// done returns the error of Once if the name is closed because the work was done.
func (e *HeldError) done() error {
	return fmt.Errorf("%w by %s", ErrDone, ownerText(e.Holders[0].Owner))
}

// aged returns e as it looks when the time d has passed.
func (e *HeldError) aged(d time.Duration) *HeldError {
	aged := *e
	aged.Holders = slices.Clone(e.Holders)
	for i := range aged.Holders {
		aged.Holders[i].Age += d
		aged.Holders[i].Left = max(0, aged.Holders[i].Left-d)
	}
	return &aged
}

func ownerText(owner string) string {
	if owner == "" {
		return "an unnamed owner"
	}
	return printable.Escape(owner) // whoever writes to the store may have chosen it, and errors reach logs
}

// short rounds a duration to the precision that a person needs.
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// callError says which call failed on which name, and why.
type callError struct {
	op, name string
	causes   []error
}

// fail wraps the causes of a failed call, the reason first, and names the lock once.
func fail(op, name string, causes ...error) error {
	if inner, ok := causes[0].(*callError); ok && inner.name == name {
		causes = append(slices.Clone(inner.causes), causes[1:]...)
	}
	return &callError{op, name, causes}
}

// failIf is like fail, but returns nil if there is no cause.
func failIf(op, name string, cause error) error {
	if cause == nil {
		return nil
	}
	return fail(op, name, cause)
}

func isLossOf(err error, name string) bool {
	var named *callError
	return errors.Is(err, ErrLost) && errors.As(err, &named) && named.name == name
}

func (e *callError) Error() string {
	var b strings.Builder
	b.WriteString("holdfast: " + e.op)
	if e.name != "" {
		// Use %.80q, because a name that is refused for its length must not fill the log.
		fmt.Fprintf(&b, " %.80q", e.name)
	}
	for _, cause := range e.causes {
		b.WriteString(": " + cause.Error())
	}
	return b.String()
}

func (e *callError) Unwrap() []error { return e.causes }

// unavailable wraps a failure of the store. What is the consequence or the number of attempts, or
// empty. A timeout of the client or store must not match context.DeadlineExceeded or
// context.Canceled, which mean that the caller's own context has ended: its cause is added apart.
func unavailable(what string, err error) error {
	if what != "" {
		what = " (" + what + ")"
	}
	return fmt.Errorf("%w%s: %w", ErrUnavailable, what, ofStore(err))
}

// ofStore returns err, or an error with the same text if err matches that of a context.
func ofStore(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.New(err.Error())
	}
	return err
}

type lostError struct{ loss renewal.Loss }

func (e *lostError) Error() string {
	if e.loss.Err != nil {
		return fmt.Sprintf("lost: %s: %v", e.loss.Reason, e.loss.Err)
	}
	return "lost: " + e.loss.Reason
}

func (e *lostError) Is(target error) bool { return target == ErrLost }
func (e *lostError) Unwrap() error        { return ofStore(e.loss.Err) }

// permanent reports whether a retry would fail with the same error.
func permanent(err error) bool {
	return errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnsupported) || errors.Is(err, store.ErrClosed)
}

// errGone is the loss of a grant that the store no longer has.
var errGone = &lostError{renewal.Gone}

// joinLoss returns the error of work that ended with err. If lost is not nil, the lock was lost,
// and the error says so once, even if the work returned the loss from context.Cause.
func joinLoss(op, name string, lost, err error) error {
	if lost == nil || isLossOf(err, name) {
		return err
	}
	if err == nil {
		return fail(op, name, lost)
	}
	return fmt.Errorf("%w; %w", fail(op, name, lost), err) // one line, unlike errors.Join
}

var (
	errNilFunc    = fmt.Errorf("%w: fn is nil", ErrInvalid)
	errNilContext = fmt.Errorf("%w: nil context: use context.Background()", ErrInvalid)
	errPanicked   = errors.New("the retry strategy panicked")
)

// waitedError is the cause of a wait that ended because of the option Wait.
type waitedError struct{ limit time.Duration }

func (e *waitedError) Error() string        { return "waited " + e.limit.String() }
func (e *waitedError) Is(target error) bool { return target == context.DeadlineExceeded }

// answerError returns the error of a call that ends with the answer to another call of this client.
func (c *Client) answerError(cl *call, a *localqueue.Answer) error {
	err := c.waitError(cl, a)
	// A call that waits gets a refusal only if the work is done. The record may have ended since.
	if held, ok := err.(*HeldError); ok && cl.Once && (!cl.Try || a.Done(c.now())) {
		return held.done()
	}
	return err
}

// waitError returns the answer to another call of this client as an error for this call.
func (c *Client) waitError(cl *call, a *localqueue.Answer) error {
	if a.Refusal == nil {
		return a.Failure
	}
	held := newHeldError(cl.name, a.Refusal).aged(c.now() - a.At)
	held.Place = 0 // the place belongs to the call that asked
	return held
}

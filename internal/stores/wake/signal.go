// Package wake has the types that stores share to wake their waiters.
package wake

import (
	"context"

	"github.com/holdfast-lock/holdfast/store"
)

// A Key identifies a waiter of a store.
type Key struct {
	Name string
	ID   store.ID
}

// A Signal tells a waiter to ask again. The zero value is a signal that was not sent yet. A
// Signal does not lock: its users hold the mutex of the store that it belongs to.
type Signal struct {
	sent bool
	c    chan struct{} // made by C, closed by Send
}

// Send ends the waits for this signal, and those that begin before the next Reset.
func (s *Signal) Send() {
	s.sent = true
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

// Reset makes the signal unsent, so that later waits block until the next Send.
func (s *Signal) Reset() { s.sent = false }

// Sent reports whether the signal was sent since the last Reset.
func (s *Signal) Sent() bool { return s.sent }

// C returns a channel that the next Send closes. It is nil if the signal was already sent.
func (s *Signal) C() <-chan struct{} {
	if s.sent {
		return nil
	}
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

// Wait waits for a channel that C returned. It returns nil when the signal is sent, or at once if
// the channel is nil. It returns the error of ctx when ctx ends, and errClosed when closed is
// closed.
func Wait(ctx context.Context, c, closed <-chan struct{}, errClosed error) error {
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return errClosed
	}
}

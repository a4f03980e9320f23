package wake

import (
	"context"
	"errors"
	"testing"
)

func TestASignalEndsTheWaitsBeforeAndAfterIt(t *testing.T) {
	var s Signal
	before := s.C()
	if s.Sent() || before == nil {
		t.Fatalf("a new signal is sent: %v", s.Sent())
	}
	s.Send()
	s.Send() // a second time does nothing
	for _, c := range []<-chan struct{}{before, s.C()} {
		if err := Wait(t.Context(), c, nil, nil); err != nil {
			t.Error(err)
		}
	}
	s.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Wait(ctx, s.C(), nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait after Reset: %v, want that of its context", err)
	}
}

func TestAClosedStoreEndsWaits(t *testing.T) {
	var s Signal
	closed, errClosed := make(chan struct{}), errors.New("closed")
	close(closed)
	if err := Wait(t.Context(), s.C(), closed, errClosed); err != errClosed {
		t.Errorf("%v, want %v", err, errClosed)
	}
}

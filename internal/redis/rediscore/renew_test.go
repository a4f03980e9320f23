package rediscore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

var errLink = errors.New("connection reset")

// A deadConn is a connection to a server that does not answer.
type deadConn struct{ Conn }

func (deadConn) Run(_ context.Context, calls ...Call) []Reply {
	return slices.Repeat([]Reply{{Err: errLink}}, len(calls))
}

// One renewal is invalid, which says nothing about the others or the server.
func TestTheErrorOfOneRenewalDoesNotAnswerForAll(t *testing.T) {
	s, err := New(deadConn{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	good := store.Renewal{Name: "good", ID: store.NewID(), TTL: time.Second, Mode: store.Exclusive}
	bad := good
	bad.Name, bad.Floor = "bad", store.MaxToken
	for _, grants := range [][]store.Renewal{{bad, good}, {good, bad}} {
		if _, err := s.Renew(t.Context(), grants); !errors.Is(err, errLink) {
			t.Errorf("%v, want %v", err, errLink)
		}
	}
	if _, err := s.Renew(t.Context(), []store.Renewal{bad}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an invalid renewal: %v", err)
	}
}

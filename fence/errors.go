package fence

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/store"
)

// ErrStale is returned when the resource has seen a newer token: the lease with the given token is over.
var ErrStale = errors.New("stale fencing token")

// A StaleError reports the refused token and the highest one. It matches ErrStale.
type StaleError struct {
	Token   int64 // refused
	Highest int64 // highest token that the resource has seen
}

// Error describes the refusal and what to do.
func (e *StaleError) Error() string {
	return fmt.Sprintf("holdfast: stale fencing token %d: the resource has seen %d, so the lease with token %[1]d is over; stop this work and acquire the lock again", e.Token, e.Highest)
}

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// checkToken returns an error that matches store.ErrInvalid unless the token is valid.
func checkToken(token int64) error {
	if token < 1 || token > store.MaxToken {
		return fmt.Errorf("holdfast: %w: fencing token %d: want the result of Lease.Token, a number from 1 to 2^53-1", store.ErrInvalid, token)
	}
	return nil
}

package fence

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/store"
)

// ErrStale means that a newer token was seen: the lease with this one is over.
var ErrStale = errors.New("stale fencing token")

// A StaleError says which token was refused, and why. It matches ErrStale.
type StaleError struct {
	Token   int64 // refused
	Highest int64 // seen by the resource
}

// Error says what happened and what to do.
func (e *StaleError) Error() string {
	return fmt.Sprintf("holdfast: stale fencing token %d: the resource has seen %d, so the lease with token %[1]d is over; stop this work and acquire the lock again", e.Token, e.Highest)
}

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// checkToken returns an error that matches store.ErrInvalid unless a grant can carry that
// token.
func checkToken(token int64) error {
	if token < 1 || token > store.MaxToken {
		return fmt.Errorf("holdfast: %w: fencing token %d: want what Lease.Token returned, a number from 1 to 2^53-1", store.ErrInvalid, token)
	}
	return nil
}

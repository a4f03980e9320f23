// Package bounded limits how long calls to a store take. The store must return soon after the context ends,
// or bound its calls itself.
package bounded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// CallTimeout bounds a call. A healthy server is faster, and a caller has time for a second one.
const CallTimeout = 3 * time.Second

// ErrNoReply is returned when a call took longer than its limit.
var ErrNoReply = errors.New("no reply in time")

// A Store makes bounded calls to a store. No limit is longer than CallTimeout.
type Store struct {
	Caps  store.Capabilities
	store store.Store
}

// New returns a Store that makes bounded calls to s.
func New(s store.Store) *Store { return &Store{Caps: s.Capabilities(), store: s} }

// bound returns a context that ends after limit. If the store itself ends calls in that time, it
// returns ctx, because a context with a timer costs more than the rest of an uncontended call.
func (s *Store) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	limit = min(limit, CallTimeout)
	if s.Caps.Instant || s.Caps.Timeout > 0 && s.Caps.Timeout <= limit {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// NoReply returns ErrNoReply if a call failed because a time limit was over, that of the call or
// a shorter one of the store, and not because the caller's context ended. It adds the reason that
// the store gives. Otherwise it returns err.
func NoReply(ctx, callCtx context.Context, err error) error {
	ended := callCtx.Err()
	if ended == nil && errors.Is(err, context.DeadlineExceeded) {
		ended = context.DeadlineExceeded
	}
	if err == nil || ended == nil || ctx.Err() != nil {
		return err
	}
	if err != ended {
		return fmt.Errorf("%w: %s", ErrNoReply, strings.TrimSuffix(err.Error(), ": "+ended.Error()))
	}
	return ErrNoReply
}

// Acquire calls the store's Acquire.
func (s *Store) Acquire(ctx context.Context, limit time.Duration, req *store.Request) (store.Answer, error) {
	callCtx, cancel := s.bound(ctx, limit)
	defer cancel()
	answer, err := s.store.Acquire(callCtx, *req)
	return answer, NoReply(ctx, callCtx, err)
}

// Wait calls the store's Wait. Only ctx bounds it.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	return s.store.Wait(ctx, name, id)
}

// Leave calls the store's Leave.
func (s *Store) Leave(ctx context.Context, limit time.Duration, name string, id store.ID) error {
	callCtx, cancel := s.bound(ctx, limit)
	defer cancel()
	return NoReply(ctx, callCtx, s.store.Leave(callCtx, name, id))
}

var errNotKnown = errors.New("the store does not know whether it was renewed")

// Renew calls the store's Renew. It returns an outcome for each request, with Err if it is unknown.
func (s *Store) Renew(ctx context.Context, limit time.Duration, requests []store.Renewal) []store.Renewed {
	callCtx, cancel := s.bound(ctx, limit)
	defer cancel()
	outcomes, err := s.store.Renew(callCtx, requests)
	if err == nil && len(outcomes) != len(requests) {
		err = fmt.Errorf("the store answered %d of %d renewals", len(outcomes), len(requests))
	}
	if err != nil {
		outcomes = make([]store.Renewed, len(requests))
	}
	for i := range outcomes {
		out := &outcomes[i]
		if out.Status == store.Extended && out.TTL <= 0 {
			out.Status = store.Unknown // a mistake of the store
		}
		if out.Status == store.Unknown {
			out.Err = NoReply(ctx, callCtx, cmp.Or(err, out.Err, errNotKnown))
		}
	}
	return outcomes
}

// Release calls the store's Release.
func (s *Store) Release(ctx context.Context, limit time.Duration, name string, id store.ID, keep store.Keep) error {
	callCtx, cancel := s.bound(ctx, limit)
	defer cancel()
	return NoReply(ctx, callCtx, s.store.Release(callCtx, name, id, keep))
}

// List calls the store's List.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	callCtx, cancel := s.bound(ctx, CallTimeout)
	defer cancel()
	page, err := s.store.List(callCtx, q)
	return page, NoReply(ctx, callCtx, err)
}

// Break calls the store's Break.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	callCtx, cancel := s.bound(ctx, CallTimeout)
	defer cancel()
	return NoReply(ctx, callCtx, s.store.Break(callCtx, name, id))
}

// Close closes the store.
func (s *Store) Close() error { return s.store.Close() }

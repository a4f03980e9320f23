// Package casstore is a small store to learn from, which docs/writing-a-store.md explains. It keeps exclusive
// locks on a server that can only return a value, replace one that has not changed, and count. Waiters poll.
package casstore

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// pollPause is how often a waiter asks.
const pollPause = 100 * time.Millisecond

// A Server is what the store needs. An empty value means that there is no value.
type Server interface {
	// Get returns the value of a key, and the time on the clock of the server.
	Get(ctx context.Context, key string) (value string, now time.Duration, err error)

	// Swap replaces a value if it is still the old one.
	Swap(ctx context.Context, key, old, new string) (swapped bool, err error)

	// Next raises a counter to floor if it is lower, adds one, and returns it.
	Next(ctx context.Context, floor int64) (int64, error)
}

const format = 1 // of the values; that of a later one that this program cannot read is higher

// A grant is the value of a name that is held. All times are on the clock of the server.
type grant struct {
	V           int // format
	ID          store.ID
	Owner, Meta string
	Token       int64
	Since, Ends time.Duration
}

// A Store keeps locks on a [Server].
type Store struct {
	server Server
	closed chan struct{}
	once   sync.Once
}

var _ store.Store = (*Store)(nil)

// New returns a store on a server.
func New(server Server) *Store { return &Store{server: server, closed: make(chan struct{})} }

// Capabilities declares nothing but exclusion between hosts. The core refuses everything else.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{Store: "cas", Features: store.FeatureHosts | store.FeatureProcesses, MinTTL: 100 * time.Millisecond, Heartbeat: time.Second}
}

// change reads the grant of a name and writes what decide returns. An expired grant is the same as
// none. If the value has changed meanwhile, nothing was written, and the decision is made again.
func (s *Store) change(ctx context.Context, name string, decide func(old *grant, now time.Duration) (*grant, error)) error {
	for {
		if err := s.usable(ctx); err != nil {
			return err
		}
		value, now, err := s.server.Get(ctx, "name:"+name)
		if err != nil {
			return err
		}
		var old *grant
		if value != "" {
			if err := json.Unmarshal([]byte(value), &old); err != nil || old.V != format {
				return store.UnknownFormat("cas store: value of " + name)
			}
			if old.Ends <= now {
				old = nil
			}
		}
		next, err := decide(old, now)
		if err != nil {
			return err
		}
		// A missing value may have been there in between, and then the token of next is too low. So the
		// first value is an expired grant, which is unique, and the decision is made again.
		first := value == "" && next != nil
		if first {
			next.Ends = 0
		}
		var text []byte
		if next != nil {
			if text, err = json.Marshal(next); err != nil {
				return err
			}
		}
		if string(text) == value {
			return nil
		}
		if swapped, err := s.server.Swap(ctx, "name:"+name, value, string(text)); err != nil || swapped && !first {
			return err // after an error, the outcome is unknown, and the core acts on that
		}
	}
}

// Acquire takes a free name. A repeated request gets its grant again, because the first reply may be lost.
func (s *Store) Acquire(ctx context.Context, req store.Request) (answer store.Answer, err error) {
	if req.Mode != store.Exclusive {
		return answer, fmt.Errorf("%w: exclusive locks only", store.ErrUnsupported)
	}
	err = s.change(ctx, req.Name, func(old *grant, now time.Duration) (*grant, error) {
		answer = store.Answer{}
		switch {
		case old == nil:
			token, err := s.next(ctx, req.Floor)
			if err != nil {
				return nil, err
			}
			old = &grant{V: format, ID: req.ID, Owner: req.Owner, Meta: req.Meta, Since: now, Token: token}
		case old.ID != req.ID:
			holder := store.Holder{
				ID: old.ID, Owner: old.Owner, Meta: old.Meta, Mode: store.Exclusive, Weight: 1,
				Token: old.Token, Age: now - old.Since, Left: old.Ends - now,
			}
			answer.Refusal = &store.Refusal{Holders: []store.Holder{holder}, Again: min(pollPause, holder.Left)}
			return old, nil
		}
		old.Ends = now + req.TTL
		answer.Token, answer.Tokens, answer.TTL = old.Token, 1, req.TTL
		return old, nil
	})
	return answer, err
}

// next returns a token that is greater than floor and all earlier ones.
func (s *Store) next(ctx context.Context, floor int64) (int64, error) {
	if floor >= store.MaxToken { // it would use up the tokens of all names
		return 0, store.NoTokens(floor)
	}
	token, err := s.server.Next(ctx, floor)
	if err == nil && token > store.MaxToken {
		err = store.NoTokens(floor)
	}
	return token, err
}

// Renew extends grants, and never brings one back. A floor asks for later tokens above it, and Tokens
// asks for further ones, of which the core needs one for each hand-over between goroutines.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	out := make([]store.Renewed, len(grants))
	for i, r := range grants {
		if r.Mode != store.Exclusive {
			out[i].Err = fmt.Errorf("%w: exclusive locks only", store.ErrUnsupported)
			continue
		}
		err := s.change(ctx, r.Name, func(old *grant, now time.Duration) (*grant, error) {
			out[i] = store.Renewed{Status: store.Gone}
			if old == nil || old.ID != r.ID {
				return old, nil
			}
			out[i] = store.Renewed{Status: store.Extended, TTL: r.TTL}
			if r.Tokens > 0 || r.Floor > 0 {
				token, err := s.next(ctx, r.Floor)
				if err != nil {
					return nil, err
				}
				if r.Tokens > 0 {
					old.Token, out[i].Token, out[i].Tokens = token, token, 1
				}
			}
			old.Ends = now + r.TTL
			return old, nil
		})
		if err != nil {
			out[i] = store.Renewed{Err: err} // unknown; the others have outcomes of their own
		}
	}
	return out, nil
}

// Release ends a grant. It compares the identity, because another one may hold the name by now.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if keep != (store.Keep{}) {
		return fmt.Errorf("%w: it cannot keep names closed", store.ErrUnsupported)
	}
	return s.change(ctx, name, func(old *grant, _ time.Duration) (*grant, error) {
		if old == nil || old.ID != id {
			return nil, store.ErrNotHeld
		}
		return nil, nil
	})
}

// Leave undoes an Acquire whose reply was lost. There is no queue, so it can only have been granted.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	return s.change(ctx, name, func(old *grant, _ time.Duration) (*grant, error) {
		if old == nil || old.ID != id {
			return old, nil
		}
		return nil, nil
	})
}

// Wait is not called by the core, because the store does not declare that it wakes waiters.
func (s *Store) Wait(ctx context.Context, _ string, _ store.ID) error {
	select {
	case <-time.After(pollPause):
	case <-ctx.Done():
	case <-s.closed:
	}
	return s.usable(ctx)
}

// List is not supported: the server cannot list its keys.
func (s *Store) List(context.Context, store.Query) (store.Page, error) {
	return store.Page{}, store.ErrUnsupported
}

// Break is not supported, because nobody can find out the identity without List.
func (s *Store) Break(context.Context, string, store.ID) error { return store.ErrUnsupported }

// Close ends calls of Wait. The store has opened nothing that it would have to close.
func (s *Store) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// usable returns an error if the store is closed or ctx has ended.
func (s *Store) usable(ctx context.Context) error {
	select {
	case <-s.closed:
		return store.ErrClosed
	default:
		return ctx.Err()
	}
}

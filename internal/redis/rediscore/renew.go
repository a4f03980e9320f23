package rediscore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Renew extends grants: see store.Store. The error of a renewal is ErrInvalid also for a floor with no token above
// it. If all renewals failed, Renew returns the first error that does not concern one grant only.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.calls.EnterCall(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Exit()
	outcomes := make([]store.Renewed, len(grants))
	var calls []Call
	var valid []int // indexes of the grants of the calls
	for i := range grants {
		if grants[i].Floor >= store.MaxToken {
			outcomes[i].Err = store.NoTokens(grants[i].Floor)
		} else {
			calls, valid = append(calls, s.renewal(&grants[i])), append(valid, i)
		}
	}
	for n, r := range s.runAll(ctx, calls) {
		outcomes[valid[n]] = parseRenewed(&grants[valid[n]], r)
	}
	known := func(r store.Renewed) bool { return r.Err == nil }
	if len(grants) > 0 && !slices.ContainsFunc(outcomes, known) {
		server := slices.IndexFunc(outcomes, func(r store.Renewed) bool { return !errors.Is(r.Err, store.ErrInvalid) })
		return nil, outcomes[max(0, server)].Err
	}
	return outcomes, nil
}

// renewal returns the call that extends a grant.
func (s *Store) renewal(g *store.Renewal) Call {
	complete := Call{
		Script: renewScript, Keys: s.keys(g.Name), Replicas: s.config.Replicas,
		Args: []string{
			s.publish(), g.ID.String(), millis(g.TTL), strconv.Itoa(int(g.Mode)),
			strconv.Itoa(min(g.Tokens, maxBlock)), decimal(g.Floor),
		},
	}
	if g.Mode != store.Exclusive || g.Floor > 0 {
		return complete
	}
	extend := Call{
		Script: extendScript, Keys: complete.Keys[1:2], Replicas: s.config.Replicas,
		Args: []string{g.ID.String(), millis(g.TTL)},
	}
	if s.config.Cluster {
		complete.moving = &extend // without new tokens
	}
	if _, plain := s.hints.plain.get(g.ID, false); !plain || g.Tokens > 0 {
		return complete
	}
	extend.fallback = func() Call {
		s.hints.plain.get(g.ID, true) // the next renewal uses the complete lane at once, even if this one fails
		return complete
	}
	return extend
}

// parseRenewed parses the reply of extend.lua or renew.lua.
func parseRenewed(g *store.Renewal, r Reply) store.Renewed {
	extended := store.Renewed{Status: store.Extended, TTL: g.TTL.Truncate(time.Millisecond)}
	switch l := list(r.Value); {
	case r.Err != nil:
		return store.Renewed{Err: r.Err}
	case r.Value == int64(1):
		return extended
	case r.Value == int64(0):
		return store.Renewed{Status: store.Gone}
	case len(l) == 2:
		return store.Renewed{Err: cmp.Or(store.CheckRenewal(g, store.Mode(number(l[1]))), errRecord)}
	case len(l) == 3:
		extended.Token, extended.Tokens = number(l[1]), int(number(l[2]))
		return extended
	}
	return store.Renewed{Err: errRecord}
}

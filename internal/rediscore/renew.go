package rediscore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Renew extends grants: see store.Store. A grant whose renewal failed is unknown; only if all
// of them failed is there an error. ErrInvalid: a grant changes its mode other than from
// exclusive to shared, or has a floor with no token above it.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Leave()
	calls := make([]Call, len(grants))
	for i := range grants {
		if grants[i].Floor >= store.MaxToken {
			return nil, tokensOver(grants[i].Floor)
		}
		calls[i] = s.renewal(&grants[i], true)
	}
	results := s.evalAll(ctx, calls, func(i int, v Value) (Call, bool) {
		if v.Kind != Int || v.Int != -1 {
			return Call{}, false
		}
		s.hints.released(grants[i].ID) // others wait: should there be no time left, the next renewal needs one round trip
		return s.renewal(&grants[i], false), true
	})
	outcomes := make([]store.Renewed, len(grants))
	var failure error
	known := 0
	for i, r := range results {
		if r.Err == nil {
			outcomes[i], r.Err = renewed(&grants[i], r.Value)
		}
		if r.Err == nil {
			known++
			continue
		}
		outcomes[i].Err = r.Err
		if failure == nil {
			failure = r.Err
		}
	}
	if known == 0 && failure != nil {
		return nil, failure
	}
	return outcomes, nil
}

// renewal is the call that extends a grant, by extend.lua if that may do.
func (s *Store) renewal(g *store.Renewal, plain bool) Call {
	group := s.keys.group(g.Name)
	if plain && g.Mode == store.Exclusive && g.Tokens == 0 && g.Floor == 0 && s.hints.isPlain(g.ID) {
		return Call{
			Script: extendScript, Keys: []string{s.keys.lock(group, g.Name)}, Replicas: s.config.Replicas,
			Args: []string{plainStart(g.ID), millis(g.TTL)},
		}
	}
	return Call{
		Script: renewScript, Keys: s.keys.all(group, g.Name), Replicas: s.config.Replicas,
		Args: []string{
			s.publish(), g.ID.String(), millis(g.TTL), strconv.Itoa(int(g.Mode)),
			strconv.Itoa(min(g.Tokens, maxBlock)), strconv.FormatInt(g.Floor, 10),
		},
	}
}

// renewed reads what extend.lua or renew.lua returned.
func renewed(g *store.Renewal, v Value) (store.Renewed, error) {
	extended := store.Renewed{Status: store.Extended, TTL: g.TTL.Truncate(time.Millisecond)}
	switch {
	case v.Kind == Int && v.Int == 1:
		return extended, nil
	case v.Kind == Int && v.Int == 0:
		return store.Renewed{Status: store.Gone}, nil
	case len(v.List) == 2:
		return store.Renewed{}, fmt.Errorf("%w: renew %q: held in %s mode, asked for %s: a grant keeps its mode or steps down from exclusive to shared",
			store.ErrInvalid, g.Name, store.Mode(v.List[1].Int), g.Mode)
	case len(v.List) == 3:
		extended.Token, extended.Tokens = v.List[1].Int, int(v.List[2].Int)
		return extended, nil
	}
	return store.Renewed{}, errRecord
}

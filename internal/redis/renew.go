package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Renew extends grants: see store.Store. ErrInvalid: one of them changes its mode other than
// from exclusive to shared, or has a floor with no token above it.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	for i := range grants {
		if grants[i].Floor >= store.MaxToken {
			return nil, tokensOver(grants[i].Floor)
		}
	}
	outcomes := make([]store.Renewed, len(grants))
	slow, err := s.extend(ctx, grants, outcomes)
	if err == nil && len(slow) > 0 {
		err = s.renew(ctx, grants, outcomes, slow)
	}
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// extend renews the plain way, and returns those for which the whole state is needed. An
// error is one of all of them, as when the server is gone; else one that failed is unknown.
func (s *Store) extend(ctx context.Context, grants []store.Renewal, outcomes []store.Renewed) (slow []int, err error) {
	var plain []int
	var calls []Call
	for i := range grants {
		g := &grants[i]
		if g.Mode != store.Exclusive || g.Tokens > 0 || g.Floor > 0 || !s.grants.known(g.ID) {
			slow = append(slow, i)
			continue
		}
		plain = append(plain, i)
		calls = append(calls, Call{
			Script: extend, Keys: []string{s.keys.lock(s.keys.group(g.Name), g.Name)},
			Args: []string{plainStart(g.ID), millis(g.TTL)},
		})
	}
	results, err := s.evalAll(ctx, calls)
	if err != nil {
		return nil, err
	}
	for n, i := range plain {
		switch r := results[n]; {
		case r.Err != nil: // unknown
		case r.Value.Int == 1:
			outcomes[i] = store.Renewed{Status: store.Extended, TTL: grants[i].TTL.Truncate(time.Millisecond)}
		case r.Value.Int == 0:
			outcomes[i] = store.Renewed{Status: store.Gone}
			s.grants.forget(grants[i].ID)
		default:
			slow = append(slow, i)
			s.grants.forget(grants[i].ID) // others wait: should there be no time left, the next call is spared a round trip
		}
	}
	return slow, nil
}

// renew renews with renew.lua.
func (s *Store) renew(ctx context.Context, grants []store.Renewal, outcomes []store.Renewed, slow []int) error {
	calls := make([]Call, len(slow))
	for n, i := range slow {
		g := &grants[i]
		calls[n] = Call{
			Script: renew, Keys: s.keys.all(s.keys.group(g.Name), g.Name),
			Args: []string{
				s.publish(), g.ID.String(), millis(g.TTL), strconv.Itoa(int(g.Mode)),
				strconv.Itoa(min(g.Tokens, maxBlock)), strconv.FormatInt(g.Floor, 10),
			},
		}
	}
	results, err := s.evalAll(ctx, calls)
	if err != nil {
		return err
	}
	for n, i := range slow {
		g, v := &grants[i], results[n].Value
		switch {
		case results[n].Err != nil: // unknown
		case v.Kind == Int && v.Int == 0:
			outcomes[i] = store.Renewed{Status: store.Gone}
			s.grants.forget(g.ID)
		case len(v.List) == 2:
			return fmt.Errorf("%w: renew %q: held in %s mode, asked for %s: a grant keeps its mode or steps down from exclusive to shared",
				store.ErrInvalid, g.Name, store.Mode(v.List[1].Int), g.Mode)
		case len(v.List) == 3:
			outcomes[i] = store.Renewed{
				Status: store.Extended, TTL: g.TTL.Truncate(time.Millisecond),
				Token: v.List[1].Int, Tokens: int(v.List[2].Int),
			}
			s.grants.forget(g.ID) // its record may be another now
		default:
			return errRecord
		}
	}
	return nil
}

// evalAll runs many scripts. If all of them fail, that is an error of the call.
func (s *Store) evalAll(ctx context.Context, calls []Call) ([]Outcome, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	for i := range calls {
		calls[i].Replicas, calls[i].Patience = s.config.Replicas, s.patience(ctx)
	}
	results := s.conn.EvalAll(ctx, calls)
	for i := range results {
		if results[i].Err == nil {
			return results, nil
		}
	}
	return nil, s.explain(ctx, results[0].Err)
}

package storetest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

func (c *link) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	var out []store.Renewed
	for i, r := range grants {
		one, err := c.renew(ctx, r)
		switch {
		case errors.Is(err, store.ErrInvalid) && !c.bug("an invalid renewal fails the others"):
			one.Err = err
		case err != nil:
			return nil, err
		}
		c.mu.Lock()
		c.renewals++
		if c.bug("one renewal in fifty returns Gone") && c.renewals%50 == 0 {
			one = store.Renewed{Status: store.Gone}
		}
		c.mu.Unlock()
		if c.bug("only some of many renewals are executed") && i >= 500 {
			one = store.Renewed{}
		}
		out = append(out, one)
	}
	if c.bug("outcomes are out of order") {
		slices.SortStableFunc(out, func(a, b store.Renewed) int { return int(a.Status) - int(b.Status) })
	}
	return out, nil
}

func (c *link) renew(ctx context.Context, r store.Renewal) (store.Renewed, error) {
	l, err := c.enter(ctx, r.Name)
	defer func() { c.leave(l) }()
	if err != nil {
		return store.Renewed{}, err
	}
	now := time.Now()
	h := c.holder(l, r.ID, "a renewal renews by name")
	if h == nil || h.State != store.Held || h.via != c && c.bug("a grant is bound to its connection") {
		return store.Renewed{Status: store.Gone}, nil
	}
	if r.Mode != h.Mode && (h.Mode != store.Exclusive || r.Mode != store.Shared) && !c.bug("a reader may become a writer") {
		return store.Renewed{}, fmt.Errorf("model: %w: from %s to %s", store.ErrInvalid, h.Mode, r.Mode)
	}
	if r.Floor >= store.MaxToken {
		return store.Renewed{}, store.NoTokens(r.Floor)
	}
	h.until = now.Add(r.TTL)
	if c.bug("a renewal extends by half") {
		h.until = now.Add(r.TTL / 2)
	}
	if c.bug("a renewal makes a grant younger") {
		h.since = now
	}
	if h.Mode != r.Mode {
		if !c.bug("a downgrade is ignored") {
			h.Mode = r.Mode
		}
		if c.bug("a downgrade changes the token") {
			h.Token = c.reserve(1, 0)
		}
		c.wake(l)
	}
	out := store.Renewed{Status: store.Extended, TTL: r.TTL}
	if !c.bug("a renewal ignores its floor") {
		c.model.counter = max(c.model.counter, r.Floor)
	}
	if r.Tokens > 0 && len(l.queue) == 0 {
		out.Tokens = min(r.Tokens, 8)
		out.Token = c.reserve(out.Tokens, 0)
		if c.bug("a renewal reserves its block again") {
			c.model.counter = out.Token - 1
		}
		h.Token, h.tokens = out.Token, out.Tokens
	}
	return out, nil
}

func (c *link) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	l, err := c.enter(ctx, name)
	defer func() { c.leave(l) }()
	if err != nil {
		return err
	}
	if keep != (store.Keep{}) && !c.features.Has(store.FeatureKeep) && !c.bug("an undeclared Keep is ignored") {
		return store.ErrUnsupported
	}
	h := c.holder(l, id, "a release releases by name")
	if h != nil && c.bug("a kept record can be released") {
		h.State = store.Held
	}
	if h == nil || h.State != store.Held {
		switch {
		case c.bug("a second release succeeds"):
			return nil
		case c.bug("a release removes a waiter") && l.place(id) >= 0:
			l.queue = slices.Delete(l.queue, l.place(id), l.place(id)+1)
		case c.bug("any identity can close a name") && keep.For > 0:
			l.holders = append(l.holders, &holder{Holder: store.Holder{ID: id, Mode: store.Exclusive, State: keep.State}, until: time.Now().Add(keep.For)})
		}
		return store.ErrNotHeld
	}
	if c.bug("a release is forgotten") {
		return nil
	}
	if c.bug("something is left after a release") && len(c.stray) == 0 {
		c.stray = append(c.stray, "token of "+name)
	}
	if keep == (store.Keep{}) || !c.features.Has(store.FeatureKeep) || c.bug("Keep is ignored") {
		last := h == l.holders[len(l.holders)-1]
		l.remove(h)
		if last || !c.bug("only the last holder wakes a waiter") {
			c.wake(l)
		}
		return nil
	}
	if keep.State == store.Done && h.Mode != store.Exclusive && !c.bug("a shared grant can be done") {
		return fmt.Errorf("model: %w: done is for exclusive grants", store.ErrInvalid)
	}
	now := time.Now()
	h.State, h.since, h.until = keep.State, now, now.Add(keep.For)
	switch {
	case c.bug("a kept record has the wrong state"):
		h.State = store.Held
	case c.bug("a kept record ends with the grant's TTL"):
		h.until = now.Add(min(keep.For, time.Second))
	case c.bug("cooling permits are free") && h.Mode == store.Permits:
		h.Weight = 0
	}
	if !c.bug("closing wakes nobody") {
		for i, w := range l.queue {
			if i == 0 || !c.bug("a name that is done wakes one waiter") {
				w.wake()
			}
		}
	}
	return nil
}

func (c *link) Break(ctx context.Context, name string, id store.ID) error {
	l, err := c.enter(ctx, name)
	defer func() { c.leave(l) }()
	if err != nil {
		return err
	}
	if !c.features.Has(store.FeatureList) {
		return store.ErrUnsupported
	}
	h := c.holder(l, id, "a break breaks by name")
	if h == nil {
		return store.ErrNotHeld
	}
	if c.bug("a break ends all holders") {
		l.holders = nil
	}
	l.remove(h)
	c.wake(l)
	return nil
}

func (c *link) List(ctx context.Context, q store.Query) (store.Page, error) {
	l, err := c.enter(ctx, "")
	defer func() { c.leave(l) }()
	if err != nil {
		return store.Page{}, err
	}
	if !c.features.Has(store.FeatureList) {
		if c.bug("an undeclared List is empty") {
			return store.Page{}, nil
		}
		return store.Page{}, store.ErrUnsupported
	}
	limit := cmp.Or(q.Limit, 100)
	var page store.Page
	skip := len(q.Cursor) // one of the bugs uses the cursor as a count
	for _, name := range slices.Sorted(maps.Keys(c.locks)) {
		if !c.matches(q, name) {
			continue
		}
		if c.bug("a cursor is an offset") {
			if skip--; skip >= 0 {
				continue
			}
		} else if name <= q.Cursor {
			continue
		}
		if len(page.Locks) == limit {
			page.Next = page.Locks[limit-1].Name
			if c.bug("a cursor is an offset") {
				page.Next = strings.Repeat("x", len(q.Cursor)+limit)
			}
			if c.bug("a page loses its last name") {
				page.Locks = page.Locks[:limit-1]
			}
			break
		}
		l := c.locks[name]
		if !c.bug("expired holders and waiters are listed") {
			l = c.find(name)
		}
		one := store.Lock{Name: name, Holders: c.list(l.holders)}
		for _, h := range l.holders {
			one.Limit = h.limit
		}
		for _, w := range l.queue {
			one.Waiters = append(one.Waiters, store.Waiter{
				ID: w.req.ID, Owner: w.req.Owner, Meta: w.req.Meta,
				Mode: w.req.Mode, Weight: w.req.Weight, Age: time.Since(w.joined),
			})
		}
		switch {
		case c.bug("waiters are listed in reverse"):
			slices.Reverse(one.Waiters)
		case c.bug("a waiter is young when it asks again"):
			for i, w := range l.queue {
				one.Waiters[i].Age = time.Since(w.asked)
			}
		case c.bug("no limit is listed"):
			one.Limit = 0
		case c.bug("a listing shows the first block"):
			for i, h := range l.holders {
				one.Holders[i].Token = h.first
			}
		case c.bug("a listing shows one holder"):
			one.Holders = one.Holders[:min(len(one.Holders), 1)]
		case c.bug("a listing is truncated"):
			one.Holders = one.Holders[:min(len(one.Holders), store.MaxHolders)]
		case c.bug("no owner is listed"):
			for i := range one.Holders {
				one.Holders[i].Owner = ""
			}
		case c.bug("names are listed in lower case"):
			one.Name = strings.ToLower(one.Name)
		}
		if len(one.Holders)+len(one.Waiters) > 0 || c.bug("free names are listed") {
			page.Locks = append(page.Locks, one)
		}
	}
	return page, nil
}

func (c *link) matches(q store.Query, name string) bool {
	switch {
	case q.Name != "" && c.bug("a name is taken as a prefix"):
		return strings.HasPrefix(name, q.Name)
	case q.Name != "":
		return name == c.key(q.Name)
	case c.bug("a prefix is a pattern"):
		return strings.HasPrefix(name, strings.TrimRight(q.Prefix, "%*?"))
	}
	return strings.HasPrefix(name, q.Prefix)
}

func (c *link) list(holders []*holder) []store.Holder {
	var out []store.Holder
	for _, h := range holders {
		one := h.Holder
		one.Age, one.Left = time.Since(h.since), time.Until(h.until)
		if c.bug("owners and metas are truncated") {
			one.Meta = one.Meta[:min(len(one.Meta), 255)]
		}
		out = append(out, one)
	}
	return out
}

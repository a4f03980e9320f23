package fence

import (
	"context"
	"slices"
	"sync"
)

// A Gate guards one resource in memory. The zero Gate is ready and has seen no token. It
// may be used from many goroutines, and must not be copied after its first use.
//
// The token is seen the moment it arrives: from then on every lower one is refused. If
// work of a lower token runs at that moment, the call waits until it is over, so that two
// holders are never inside at once.
type Gate struct {
	mu      sync.Mutex
	highest int64         // seen
	inside  []*visit      // work that runs now: few
	current int64         // the one token of all work inside
	empty   chan struct{} // closed when nobody is inside; nil unless somebody waits for it
}

// A visit is work that runs inside a gate.
type visit struct {
	overtaken func(highest int64) // called when a newer token arrives; may be nil
}

// Do runs work under a token, as one step with the check: while it runs no newer token is
// admitted, and it does not run at all if one was seen. Work of the same token may run at
// the same time, because a holder may use several goroutines. A gate is free again
// however work ends: by returning, by panicking or by runtime.Goexit.
//
// Work that admits a newer token to its own gate waits for itself.
//
// It returns a *StaleError if a newer token was seen, an error that matches
// holdfast.ErrInvalid if no grant can have that token, and else what work returned.
func (g *Gate) Do(token int64, work func() error) error {
	v, err := g.enter(context.Background(), token, nil)
	if err != nil {
		return err
	}
	defer g.leave(v)
	return work()
}

// Check admits a token: it returns nil if it is the highest seen so far, and remembers it.
//
// A write that follows a Check is not safe by it. The goroutine can be paused between the
// two for as long as it takes the next holder to come, be checked and write, and the old
// write then lands on top of the new one, which is what the token was to prevent. Use
// [Gate.Do] to write; Check is for refusing early, before work is prepared.
//
// It returns the errors of Do.
func (g *Gate) Check(token int64) error {
	return g.Do(token, func() error { return nil })
}

// Raise makes the gate refuse what is older than token. A holder calls it when it has
// acquired, before it reads what it will base its writes on. Without it a write of an
// earlier holder could still land between that reading and the new holder's first write.
// Once Raise has returned nil no older work runs, and none will.
//
// It is also the way to restore a token that was stored with the data.
//
// It returns the errors of Do. A stale error means that the caller itself is not the
// newest holder.
func (g *Gate) Raise(token int64) error { return g.Check(token) }

// Highest returns the highest token seen, 0 if none was.
func (g *Gate) Highest() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.highest
}

// enter waits until work of token may run, or until ctx ends. The caller must leave.
// Overtaken is called, with the gate locked and never after leave, when a newer token
// arrives.
func (g *Gate) enter(ctx context.Context, token int64, overtaken func(highest int64)) (*visit, error) {
	if err := checkToken(token); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if token > g.highest {
		g.highest = token
		for _, v := range g.inside {
			if v.overtaken != nil {
				v.overtaken(token)
			}
		}
	}
	for {
		if token < g.highest { // from the start, or overtaken while waiting
			return nil, &StaleError{Token: token, Highest: g.highest}
		}
		if len(g.inside) == 0 || g.current == token {
			break
		}
		if err := g.waitEmpty(ctx); err != nil {
			return nil, err
		}
	}
	v := &visit{overtaken: overtaken}
	g.inside = append(g.inside, v)
	g.current = token
	return v, nil
}

// waitEmpty unlocks the gate until nobody is inside, or until ctx ends.
func (g *Gate) waitEmpty(ctx context.Context) error {
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	empty := g.empty
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *Gate) leave(v *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.inside, v)
	g.inside = slices.Delete(g.inside, i, i+1)
	if len(g.inside) == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

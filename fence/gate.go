package fence

import (
	"context"
	"slices"
	"sync"
)

// A Gate guards one resource in memory. The zero Gate is ready to use and has seen no token. It is safe for
// concurrent use, and must not be copied after first use.
//
// A token takes effect when its call arrives: from then on every lower one is refused. If work with a lower
// token is running at that moment, the call waits for its end, so that two holders are never inside at the
// same time.
//
// The methods return a *StaleError if a newer token was seen, and an error that matches holdfast.ErrInvalid
// if the token is not valid.
type Gate struct {
	mu      sync.Mutex
	highest int64         // highest token seen
	inside  []*visit      // running work; usually few
	current int64         // token of all running work
	empty   chan struct{} // closed when no work is running; nil unless a call waits for that
}

// A visit is work that is running inside a gate.
type visit struct {
	overtaken func(highest int64) // called when a newer token arrives; may be nil
}

// Do checks the token and runs work in one step: work does not run if a newer token was seen, and no newer
// token is admitted while it runs. Work with the same token may run concurrently, because a holder may use
// several goroutines. The gate is free again however work ends: by returning, by panicking or by
// runtime.Goexit.
//
// Work must not call its own gate with a newer token, because that call would wait for work to end.
//
// If work ran, Do returns its result.
func (g *Gate) Do(token int64, work func() error) error {
	v, err := g.enter(context.Background(), token, nil)
	if err != nil {
		return err
	}
	defer g.leave(v)
	return work()
}

// Check returns nil if no newer token was seen, and remembers the token. It does not make a later write safe:
// the goroutine can be paused between the two while the next holder is checked and writes. The old write then
// overwrites the new one, which the token is meant to prevent. Use [Gate.Do] to write; use Check to refuse
// early, before work is prepared.
func (g *Gate) Check(token int64) error {
	return g.Do(token, func() error { return nil })
}

// Raise makes the gate refuse older tokens. A holder calls it after acquiring the lock, before it reads the
// data on which its writes depend. Otherwise a write of an earlier holder could land between that read and
// the new holder's first write. Once Raise has returned nil, no older work is running, and none will run. If
// it returns a *StaleError, the caller is not the newest holder.
//
// Raise can also restore a token that was stored with the data.
func (g *Gate) Raise(token int64) error { return g.Check(token) }

// Highest returns the highest token seen, or 0 if there was none.
func (g *Gate) Highest() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.highest
}

// enter waits until work with token may run, or until ctx ends. The caller must call leave. Overtaken is called
// when a newer token arrives, with the gate locked and never after leave.
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
	for token == g.highest && len(g.inside) > 0 && g.current != token {
		if err := g.waitEmpty(ctx); err != nil {
			return nil, err
		}
	}
	if token < g.highest { // from the start, or overtaken while waiting
		return nil, &StaleError{Token: token, Highest: g.highest}
	}
	v := &visit{overtaken: overtaken}
	g.inside = append(g.inside, v)
	g.current = token
	return v, nil
}

// waitEmpty unlocks the gate until no work is running, or until ctx ends.
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

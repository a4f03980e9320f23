package rediscore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Between two attempts while a slot of a Cluster migrates.
const (
	leastSlotPause = 5 * time.Millisecond
	mostSlotPause  = 100 * time.Millisecond
)

// eval runs one script, and explains its error.
func (s *Store) eval(ctx context.Context, call Call) (Value, error) {
	call.Patience = s.patience(ctx)
	v, err := s.evalInSlot(ctx, call)
	if err != nil {
		err = s.explain(ctx, err)
	}
	return v, err
}

// evalInSlot runs one script. While the slot of a Cluster migrates, a script of several keys is
// refused with TRYAGAIN unless one server has all of them; nothing has happened then, and it
// is tried again until ctx ends. Its error says so even if ctx ends during the last attempt.
func (s *Store) evalInSlot(ctx context.Context, call Call) (v Value, err error) {
	var moving error
	for pause := leastSlotPause; ; pause = min(2*pause, mostSlotPause) {
		v, err = s.conn.Eval(ctx, call)
		switch {
		case err == nil:
			return v, nil
		case strings.HasPrefix(err.Error(), "TRYAGAIN"):
			moving = err
		case moving == nil || ctx.Err() == nil:
			return v, err
		}
		if !sleep(ctx, pause) {
			return v, moving
		}
	}
}

// evalAll runs many scripts, with an outcome for each. Next, if not nil, says what to run after
// a script has returned that value, and whether to. The shards of a Cluster do not wait for
// each other: there each script is a call of its own, and the library pipelines those that go
// to one server.
func (s *Store) evalAll(ctx context.Context, calls []Call, next func(int, Value) (Call, bool)) []Outcome {
	if s.config.Cluster {
		outcomes := make([]Outcome, len(calls))
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				o := &outcomes[i]
				o.Value, o.Err = s.eval(ctx, calls[i])
				if o.Err == nil && next != nil {
					if call, ok := next(i, o.Value); ok {
						o.Value, o.Err = s.eval(ctx, call)
					}
				}
			})
		}
		wg.Wait()
		return outcomes
	}
	for i := range calls {
		calls[i].Patience = s.patience(ctx)
	}
	outcomes := s.conn.EvalAll(ctx, calls)
	var more []Call
	var which []int
	for i := range outcomes {
		if err := outcomes[i].Err; err != nil {
			outcomes[i].Err = s.explain(ctx, err)
		} else if next != nil {
			if call, ok := next(i, outcomes[i].Value); ok {
				more, which = append(more, call), append(which, i)
			}
		}
	}
	if len(more) > 0 {
		for n, o := range s.evalAll(ctx, more, nil) {
			outcomes[which[n]] = o
		}
	}
	return outcomes
}

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// patience is how long to wait for replicas: a good part of what the call has.
func (s *Store) patience(ctx context.Context) time.Duration {
	const most = 2 * time.Second
	if end, ok := ctx.Deadline(); ok {
		return min(most, max(time.Millisecond, time.Until(end)*3/4))
	}
	return most
}

func (s *Store) errClosed() error { return fmt.Errorf("%s store: %w", s.config.Name, store.ErrClosed) }

// explain adds to an error what to do about it.
func (s *Store) explain(ctx context.Context, err error) error {
	text := err.Error()
	switch {
	case s.calls.Closing.Err() != nil:
		return s.errClosed()
	case ctx.Err() != nil && !errors.As(err, new(*ReplicasError)) && !strings.HasPrefix(text, "TRYAGAIN"):
		return ctx.Err()
	}
	for _, known := range []struct{ word, advice string }{
		{"NOPERM", noRights},
		{"The user executing the script", noRights},
		{"MOVED", "this is a node of a Cluster: write redis+cluster://"},
		{"TRYAGAIN", "the slot of this name is being moved to another server: it can be used again when that is done"},
		{"NOAUTH", "the server wants a user or password: put it into the URL, as in redis://user:password@host"},
		{"WRONGPASS", "user or password are wrong: check those of the URL"},
		{"READONLY", "this is a replica: give the address of the primary, or use Sentinel or Cluster"},
		{"OOM", "the server has no memory left: raise maxmemory, with maxmemory-policy noeviction"},
		{"MISCONF", "the server cannot save its data: see its log, and its disk"},
		{"LOADING", "the server is starting; it answers when it has read its data"},
		{"WRONGTYPE", "another program uses keys that begin with " + Prefix},
	} {
		if strings.Contains(text, known.word) {
			return fmt.Errorf("%s store: %w: %s", s.config.Name, err, known.advice)
		}
	}
	return fmt.Errorf("%s store: %w", s.config.Name, err)
}

const noRights = "the user of the URL may not do this: give it the rights that the package documentation lists"

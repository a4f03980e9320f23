package mysqlstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A row of a name that is not in use holds its last token, so that a later grant has a greater one even if
// the server's clock was set back. It is removed when meta.low guarantees the same. Low is raised to the
// clock in each sweep, and a row is removed by a later sweep if all its tokens are at most the low of the
// previous sweep. By then no client uses an older low, because a client reads it every metaFresh, and a
// statement ends after callTimeout. If the clock was set back, the previous sweep may have been a moment
// ago. So a row also stays while its tokens are ahead of the clock.
const (
	sweepEvery = 10 * time.Second
	sweepIdle  = 5 * time.Second // a row that was used recently may be used again soon
	sweepNames = 500             // in a statement
	sweepTime  = 5 * time.Second // of a sweep

	// sweepGrace bounds how long Close waits for a sweep. Programs that end after a moment would
	// otherwise never complete one, and if no other programs run, all their rows would stay.
	sweepGrace = 500 * time.Millisecond
)

// sweep decides when to remove rows that are not in use.
type sweep struct {
	mu      sync.Mutex
	next    time.Time
	running chan struct{} // closed when the last sweep has ended; nil if there was none

	turn  sync.Mutex // held during a sweep
	after string     // name after which the next part continues
}

// sweepSometimes starts a sweep in the background, if it is time for one.
func (s *Store) sweepSometimes() {
	s.sweep.mu.Lock()
	defer s.sweep.mu.Unlock()
	now := time.Now()
	if now.Before(s.sweep.next) {
		return
	}
	s.sweep.next = now.Add(sweepEvery)
	ended := make(chan struct{})
	if s.background(func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(s.life.Closing, sweepTime)
		defer cancel()
		s.sweepNow(ctx)
	}) {
		s.sweep.running = ended
	}
}

// await waits for the end of a sweep, for at most sweepGrace.
func (w *sweep) await() {
	w.mu.Lock()
	running := w.running
	w.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-time.After(sweepGrace):
		}
	}
}

// sweepNow removes rows that are not in use, unless another program does so, or only later versions may. The
// next one continues the work.
func (s *Store) sweepNow(ctx context.Context) error {
	s.sweep.turn.Lock()
	defer s.sweep.turn.Unlock()
	var low int64
	var more bool // false if it may not
	err := s.gives.use(ctx, func(ctx context.Context, c *conn) error {
		n, err := c.exec(ctx, fmt.Sprintf(s.sql.elect, version, sweepEvery.Microseconds()))
		if n == 0 || err != nil {
			return err
		}
		more = true
		err = c.query(ctx, withTables("SELECT low FROM {{meta}} WHERE one = 1", s.prefix), func() {}, &low)
		if err != nil {
			return err
		}
		_, err = c.exec(ctx, withTables("UPDATE {{meta}} SET low = GREATEST(low, {{now}}) WHERE one = 1", s.prefix))
		return err
	})
	for more && err == nil {
		more, err = s.sweepPart(ctx, low)
	}
	return err
}

// sweepPart sweeps some rows. Between two parts, other calls can use the lane.
func (s *Store) sweepPart(ctx context.Context, low int64) (more bool, err error) {
	var unused, crowded []string
	n := 0
	err = s.gives.use(ctx, func(ctx context.Context, c *conn) error {
		var name string
		var crowd, over bool
		query := fmt.Sprintf(s.sql.sweep, sweepIdle.Microseconds(), literal(s.sweep.after), sweepNames)
		err := c.query(ctx, query, func() {
			switch {
			case crowd:
				crowded = append(crowded, name)
			case over:
				unused = append(unused, name)
			}
			s.sweep.after = name
			n++
		}, &name, &crowd, &over)
		if err == nil {
			err = s.removeUnused(ctx, c, unused, low)
		}
		if err != nil || len(crowded) == 0 {
			return err
		}
		locked, err := s.lockedNames(ctx, c, crowded)
		crowded = slices.DeleteFunc(crowded, func(name string) bool { return locked[name] })
		return err
	})
	if err != nil {
		return false, err
	}
	for names := range slices.Chunk(crowded, maxBatch) { // ends claims that have expired, and wakes the waiters behind them
		var calls []*call
		for _, name := range names {
			calls = append(calls, &call{name: name, do: func(*entry) error { return nil }})
		}
		s.gives.send(context.Background(), calls)
	}
	if n < sweepNames {
		s.sweep.after = ""
	}
	return n == sweepNames, nil
}

// removeUnused removes rows. It leaves locked ones to the next sweep, because waiting would delay renewals.
func (s *Store) removeUnused(ctx context.Context, c *conn, names []string, low int64) error {
	if len(names) == 0 {
		return nil
	}
	return c.inTransaction(ctx, func() error {
		var name string
		var unlocked []string
		err := c.query(ctx, fmt.Sprintf(s.sql.unlocked, literals(names)), func() { unlocked = append(unlocked, name) }, &name)
		if err != nil || len(unlocked) == 0 {
			return err
		}
		_, err = c.exec(ctx, fmt.Sprintf(s.sql.remove, literals(unlocked), sweepIdle.Microseconds(), low, sweepEvery.Microseconds()))
		return err
	})
}

package mysqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// MySQL cannot push, so a store polls the rows of its waiters, as the package documentation says. After
// half a minute a waiter is no longer checked between two of its requests.
//
// Other ways need a connection for each client that waits (SLEEP in a statement) or for each name
// (GET_LOCK, which does not work with Galera either).
const (
	pollFirst = 2 * time.Millisecond    // multiplied by the place in the queue
	pollPart  = 16                      // divides the time waited
	pollMost  = 2500 * time.Millisecond // the longest time between two checks of a row; longer than between two requests, with the default heartbeat
	pollMany  = 128                     // maximum number of waiters in a statement
	pollLimit = time.Second             // time limit of a statement
)

// waits holds the identities that were queued through a store.
type waits struct {
	wake.Table[waiting]
	polling bool
	news    chan struct{} // holds an element if there may be a new waiter
}

// A waiting is what is known of a queued identity.
type waiting struct {
	seq   int64
	place int
	begin time.Time // since when it has had its place
	due   time.Time // when to check its row next
	waits int       // calls of Wait
}

// expect records that an identity is being refused. A change after this call wakes it.
func (p *waits) expect(key wake.Key, seq int64, place int) {
	p.Lock()
	defer p.Unlock()
	w := p.Put(key)
	w.Reset()
	w.Value.setPlace(seq, place)
}

// stay is like expect, but a change since the last call of expect wakes the identity, too.
func (p *waits) stay(key wake.Key, seq int64, place int) {
	p.Lock()
	defer p.Unlock()
	if p.All[key] != nil {
		p.Put(key).Value.setPlace(seq, place)
	}
}

// setPlace records the place of a waiter, and when to check it next.
func (w *waiting) setPlace(seq int64, place int) {
	now := time.Now()
	if w.seq != seq || w.place != place {
		w.seq, w.place, w.begin = seq, place, now // the queue moves, so its turn may come soon
	}
	w.due = now.Add(w.pause(now))
}

// pause returns the time until the next check.
func (w *waiting) pause(now time.Time) time.Duration {
	return min(max(pollFirst*time.Duration(w.place), now.Sub(w.begin)/pollPart), pollMost)
}

// state reports whether an identity was queued through this store, and was woken since.
func (p *waits) state(key wake.Key) (queued, woken bool) {
	p.Lock()
	defer p.Unlock()
	w := p.All[key]
	return w != nil, w != nil && w.Sent()
}

// Wait blocks until a queued identity should ask again: see [store.Store]. It returns nil at once
// if the identity was not queued through this store.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.life.Usable(ctx); err != nil {
		return err
	}
	p := &s.waits
	p.Lock()
	var c <-chan struct{}
	if w := p.All[wake.Key{Name: name, ID: id}]; w != nil {
		if c = w.C(); c != nil {
			w.Value.waits++
			defer func() {
				p.Lock()
				w.Value.waits--
				p.Unlock()
			}()
			if !p.polling {
				p.polling = s.background(s.poll)
			}
		}
	}
	p.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
	return wake.Wait(ctx, c, s.life.Closing.Done(), s.life.ErrClosed)
}

// poll checks the rows of waiters until there are no more waiters.
func (s *Store) poll() {
	p := &s.waits
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.life.Closing.Done():
			return
		case <-p.news:
		case <-timer.C:
		}
		due, next, any := p.due(time.Now())
		if !any {
			return
		}
		if len(due) > 0 {
			s.look(due)
			next = 0
		}
		timer.Reset(next)
	}
}

// due returns the waiters to check now, and the time until the next check. Without waiters it ends polling.
func (p *waits) due(now time.Time) (due map[wake.Key]int64, next time.Duration, any bool) {
	p.Lock()
	defer p.Unlock()
	due, next = make(map[wake.Key]int64), pollMost
	for key, w := range p.All {
		if w.Value.waits == 0 || w.Sent() {
			continue
		}
		any = true
		left := w.Value.due.Sub(now)
		if left < pollFirst/2 && len(due) < pollMany {
			due[key] = w.Value.seq
			w.Value.due = now.Add(w.Value.pause(now))
			continue
		}
		next = min(next, max(left, 0))
	}
	p.polling = any
	return due, next, any
}

// look reads the rows of waiters, and wakes those that were told to ask again or whose row is gone.
func (s *Store) look(due map[wake.Key]int64) {
	ctx, cancel := context.WithTimeout(s.life.Closing, pollLimit)
	defer cancel()
	keys := make([]string, 0, len(due))
	for key, seq := range due {
		keys = append(keys, claimKey(key.Name, seq, key.ID))
	}
	query := fmt.Sprintf(s.sql.poll, strings.Join(keys, " OR "))
	places := make(map[wake.Key]int, len(due))
	err := s.takes.use(ctx, func(ctx context.Context, c *conn) error {
		var name string
		var id []byte
		var rung bool
		var place int
		return c.query(ctx, query, func() {
			if !rung {
				places[wake.Key{Name: name, ID: store.ID(id)}] = place + 1
			}
		}, &name, &id, &rung, &place)
	})
	if err != nil {
		return // the waiters ask again by themselves
	}
	p := &s.waits
	p.Lock()
	defer p.Unlock()
	for key, seq := range due {
		w := p.All[key]
		if w == nil || w.Value.seq != seq {
			continue // it has asked meanwhile
		}
		place, waits := places[key]
		if !waits {
			w.Send()
			continue
		}
		w.Value.setPlace(seq, place)
	}
}

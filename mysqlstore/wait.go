package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// MySQL cannot push. A store that has waiters therefore polls their rows to see whether another
// process has told one of them to ask again. One statement reads all rows that are due. The first
// waiter is checked most often, the others in proportion to their place, and all of them less
// often the longer the queue does not move. So the delay with which a waiter learns of its turn
// is a fraction of that time. After half a minute a waiter is no longer checked between two of its
// requests, and these are one statement each: see keep.
//
// Measured on a busy machine with two cores, for 50 waiting clients: polling every 2 ms costs the
// server 60 to 90 % of a core and finds a change after 2 to 3 ms. Polling every 10 ms costs 26 to
// 30 % and finds it after 7 ms. A statement that waits in the server, with SLEEP and dirty reads
// in a loop, costs half as much, but needs a connection for each client while it waits. GET_LOCK
// hands over in 0.2 ms, but needs a connection for each name that is held or waited for, and does
// not work with Galera.
const (
	pollFirst = 2 * time.Millisecond    // multiplied by the place in the queue
	pollPart  = 16                      // divides the time waited
	pollMost  = 2500 * time.Millisecond // the longest time between two checks of a row; longer than between two requests, with the default heartbeat
	pollMany  = 128                     // maximum number of waiters in a statement
	pollLimit = time.Second             // time limit of a statement
)

// waits holds the identities that were queued through a store.
type waits struct {
	mu      sync.Mutex
	all     map[wake.Key]*waiting
	polling bool
	news    chan struct{} // holds an element if there may be a new waiter
	keep    time.Duration // how long an identity that stopped asking is remembered
}

// A waiting is a queued identity.
type waiting struct {
	wake.Signal
	seq   int64
	place int
	begin time.Time // since when it has had its place
	asked time.Time // time of the last refusal
	due   time.Time // when to check its row next
	waits int       // calls of Wait
	last  *refusal  // the last one that was read from the rows
}

// expect records that an identity is being refused. A change after this call wakes it.
func (p *waits) expect(name string, w *rules.Claim, r *refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = make(map[wake.Key]*waiting)
	}
	key := wake.Key{Name: name, ID: w.ID}
	one := p.all[key]
	if one == nil {
		one = new(waiting)
		p.all[key] = one
	}
	one.Reset()
	one.refused(w.Seq, r)
}

// stay records that an identity was refused again, at its place. A change since the last call of
// expect wakes it.
func (p *waits) stay(name string, w *rules.Claim, r *refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.all[wake.Key{Name: name, ID: w.ID}]; one != nil {
		one.refused(w.Seq, r)
	}
}

// kept records that an identity was refused again, and that nothing has changed.
func (p *waits) kept(name string, id store.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.all[wake.Key{Name: name, ID: id}]; w != nil {
		w.refused(w.seq, w.last)
	}
}

// last returns the last refusal of a queued identity, or nil, and its seq.
func (p *waits) last(name string, id store.ID) (last *refusal, seq int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.all[wake.Key{Name: name, ID: id}]; w != nil {
		return w.last, w.seq
	}
	return nil, 0
}

func (w *waiting) refused(seq int64, r *refusal) {
	w.asked = time.Now()
	if w.seq != seq || w.place != r.Place {
		w.seq, w.place, w.begin = seq, r.Place, w.asked // the queue moves, so its turn may come soon
	}
	w.last = r
	w.due = w.asked.Add(w.pause(w.asked))
}

// pause returns the time until the next check.
func (w *waiting) pause(now time.Time) time.Duration {
	return min(max(pollFirst*time.Duration(w.place), now.Sub(w.begin)/pollPart), pollMost)
}

// forget ends the wait of an identity that is no longer queued.
func (p *waits) forget(name string, id store.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := wake.Key{Name: name, ID: id}
	if w := p.all[key]; w != nil {
		w.Send()
		delete(p.all, key)
	}
}

// has reports whether an identity was queued through this store.
func (p *waits) has(name string, id store.ID) bool {
	queued, _ := p.state(name, id)
	return queued
}

// state reports whether an identity was queued through this store, and was woken since.
func (p *waits) state(name string, id store.ID) (queued, woken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.all[wake.Key{Name: name, ID: id}]
	return w != nil, w != nil && w.Sent()
}

// wake wakes the waiters that are in this process.
func (p *waits) wake(woken []wake.Key) {
	if len(woken) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range woken {
		if w := p.all[key]; w != nil {
			w.Send()
		}
	}
}

// Wait blocks until a queued identity should ask again: see [store.Store]. It returns nil at once
// if the identity was not queued through this store.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	p := &s.waits
	p.mu.Lock()
	w := p.all[wake.Key{Name: name, ID: id}]
	var c <-chan struct{}
	if w != nil {
		if c = w.C(); c != nil {
			w.waits++
			defer func() {
				p.mu.Lock()
				w.waits--
				p.mu.Unlock()
			}()
			if !p.polling {
				p.polling = s.background(s.poll)
			}
		}
	}
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
	return wake.Wait(ctx, c, s.life.Done(), errClosed)
}

// poll checks the rows of waiters until there are no more waiters.
func (s *Store) poll() {
	p := &s.waits
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.life.Done():
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

// due returns the waiters to check now, and the time until the next check. If there are no
// waiters, it ends polling.
func (p *waits) due(now time.Time) (due []wake.Key, next time.Duration, any bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = pollMost
	for key, w := range p.all {
		if w.waits == 0 || w.Sent() {
			if w.waits == 0 && now.Sub(w.asked) > p.keep {
				delete(p.all, key) // it stopped asking
			}
			continue
		}
		any = true
		left := w.due.Sub(now)
		if left < pollFirst/2 && len(due) < pollMany {
			due = append(due, key)
			w.due = now.Add(w.pause(now))
			continue
		}
		next = min(next, max(left, 0))
	}
	p.polling = any
	return due, next, any
}

// look reads the rows of waiters, and wakes those that were told to ask again or whose row is
// gone. If it fails, it is repeated later, and the waiters ask again by themselves anyway.
func (s *Store) look(due []wake.Key) {
	ctx, cancel := context.WithTimeout(s.life, pollLimit)
	defer cancel()
	p := &s.waits
	seqs := make(map[wake.Key]int64, len(due))
	keys := make([]string, 0, len(due))
	p.mu.Lock()
	for _, key := range due {
		if w := p.all[key]; w != nil {
			seqs[key] = w.seq
			keys = append(keys, "("+claimKey(key.Name, w.seq, key.ID)+")")
		}
	}
	p.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	query := fmt.Sprintf(s.sql.poll, strings.Join(keys, " OR "))
	places := make(map[wake.Key]int, len(due))
	err := s.takes.use(ctx, func(ctx context.Context, c *conn) error {
		return c.query(ctx, query, func(rows *sql.Rows) error {
			var name string
			var id []byte
			var rung bool
			var place int
			if err := rows.Scan(&name, &id, &rung, &place); err != nil {
				return err
			}
			if !rung {
				places[wake.Key{Name: name, ID: store.ID(id)}] = place + 1
			}
			return nil
		})
	})
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, seq := range seqs {
		w := p.all[key]
		if w == nil || w.seq != seq {
			continue // it has asked meanwhile
		}
		place, waits := places[key]
		if !waits {
			w.Send()
			continue
		}
		now := time.Now()
		if place != w.place {
			w.place, w.begin = place, now
		}
		w.due = now.Add(w.pause(now))
	}
}

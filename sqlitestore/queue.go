package sqlitestore

import (
	"cmp"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// asksPerHeartbeat is how often a waiter asks per heartbeat, so that it does not lose its
	// place if one request is late.
	asksPerHeartbeat = 3

	// pollEvery is how often a waiter asks if wake-ups cannot be pushed to it.
	pollEvery = 50 * time.Millisecond

	// minAgain keeps a waiter from spinning when a grant is about to expire.
	minAgain = time.Millisecond
)

// A waiter is a queued request.
type waiter struct {
	seq    int64
	id     store.ID
	mode   store.Mode
	weight int
	limit  int
	wake   string
}

func waiterOf(row []driver.Value) *waiter {
	return &waiter{
		seq: integer(row[0]), id: idOf(row[1]),
		mode: store.Mode(integer(row[2])), weight: int(integer(row[3])), limit: int(integer(row[4])),
		wake: text(row[5]),
	}
}

// waiter runs a query that returns a waiter. It returns nil if there is none.
func (e *entry) waiter(query string, args ...driver.Value) (*waiter, error) {
	if e.waiters == 0 {
		return nil, nil
	}
	row, err := e.tx.conn.get(query, args...)
	if err != nil || row == nil {
		return nil, err
	}
	return waiterOf(row), nil
}

// ask answers a request.
func (tx *callTx) ask(e *entry, req *store.Request) (store.Answer, error) {
	e.asker = req.ID
	w, err := e.waiter(sqlGetWaiter, req.Name, req.ID[:])
	if err != nil {
		return store.Answer{}, err
	}
	g, err := e.find(req.ID)
	if err != nil {
		return store.Answer{}, err
	}
	if g != nil && g.state == store.Held {
		if err := store.SameClaim(req, g.mode, g.weight, g.limit); err != nil {
			return store.Answer{}, err
		}
		g.until = after(tx.now, req.TTL)
		return store.Answer{Token: g.token, Tokens: g.tokens, TTL: req.TTL, Waiters: e.waiters}, e.update(g)
	}
	if w != nil {
		if err := store.SameClaim(req, w.mode, w.weight, w.limit); err != nil {
			return store.Answer{}, err
		}
	}
	if err := e.mixes(req); err != nil {
		return store.Answer{}, err
	}
	first, err := e.waiter(sqlFirstWaiter, e.name)
	if err != nil {
		return store.Answer{}, err
	}
	// A kept record of this identity means that its grant has ended. The identity must not be
	// granted again beside its own record.
	fits, err := e.admits(req.Mode, req.Weight, req.Limit)
	if err != nil {
		return store.Answer{}, err
	}
	fits = fits && g == nil
	if !fits || first != nil && first.id != req.ID {
		refusal, err := tx.refuse(e, req, w, fits)
		return store.Answer{Refusal: refusal}, err
	}
	token, tokens, err := tx.reserve(req.Tokens, req.Floor)
	if err != nil {
		return store.Answer{}, err
	}
	g = &grant{
		id: req.ID, mode: req.Mode, weight: req.Weight, limit: req.Limit,
		token: token, tokens: tokens, since: tx.now, until: after(tx.now, req.TTL),
		owner: req.Owner, meta: req.Meta,
	}
	if err := e.add(g); err != nil {
		return store.Answer{}, err
	}
	if w != nil {
		if err := e.drop(w); err != nil {
			return store.Answer{}, err
		}
	}
	return store.Answer{Token: token, Tokens: tokens, TTL: req.TTL, Waiters: e.waiters}, nil
}

// refuse queues the request if it asks for that, and returns its refusal. W is the waiter of the
// request if it is queued already.
func (tx *callTx) refuse(e *entry, req *store.Request, w *waiter, fits bool) (*store.Refusal, error) {
	r := &store.Refusal{}
	var err error
	if !fits {
		if r.Holders, err = e.holders(store.MaxHolders); err != nil {
			return nil, err
		}
	}
	again := tx.heartbeat / asksPerHeartbeat
	var seq int64
	if req.Queue {
		wake := tx.pushes.expect(req.Name, req.ID)
		if wake == "" {
			again = pollEvery
		}
		if seq, err = e.enqueue(req, w, wake); err != nil {
			return nil, err
		}
		r.Waiters = e.waiters - 1
	} else {
		if w != nil {
			if err := e.drop(w); err != nil {
				return nil, err
			}
		}
		seq = never
		r.Waiters = e.waiters
	}
	row, err := tx.conn.get(sqlInFront, e.name, seq)
	if err != nil {
		return nil, err
	}
	inFront, due := int(integer(row[0])), integer(row[1])
	if req.Queue {
		r.Place = inFront + 1
	}
	if inFront == 0 {
		due = e.due() // otherwise due is the time at which a waiter in front is removed
	}
	r.Again = max(minAgain, min(again, time.Duration(due-tx.now)))
	return r, nil
}

// due returns when the next holder expires.
func (e *entry) due() int64 {
	due := int64(never)
	if e.first != nil {
		due = e.first.until
	}
	if e.others.some {
		due = min(due, e.others.due)
	}
	return due
}

// holders returns at most limit holders, the oldest first.
func (e *entry) holders(limit int) ([]store.Holder, error) {
	var grants []*grant
	if e.first != nil {
		grants = append(grants, e.first)
	}
	if e.others.some {
		err := e.tx.conn.each(func(row []driver.Value) error {
			grants = append(grants, grantOf(row))
			return nil
		}, sqlOldestHolders, e.name, e.tx.now, int64(limit))
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(grants, func(a, b *grant) int { return cmp.Compare(a.since, b.since) })
	var list []store.Holder
	for _, g := range grants[:min(len(grants), limit)] {
		list = append(list, g.holder(e.tx.now))
	}
	return list, nil
}

// enqueue adds a request to the end of the queue, or keeps its place.
func (e *entry) enqueue(req *store.Request, w *waiter, wake string) (seq int64, err error) {
	conn, now := e.tx.conn, e.tx.now
	until := now + int64(e.tx.heartbeat) + 1 // dropped only if silent for longer than a heartbeat
	if w != nil {
		_, err = conn.exec(sqlKeepWaiter, until, wake, req.Owner, req.Meta, e.name, w.seq)
		return w.seq, err
	}
	row, err := conn.get(sqlLastWaiter, e.name)
	if err != nil {
		return 0, err
	}
	seq = integer(row[0]) + 1
	_, err = conn.exec(sqlAddWaiter, e.name, seq, req.ID[:], int64(req.Mode), int64(req.Weight), int64(req.Limit),
		now, until, wake, req.Owner, req.Meta)
	e.waiters++
	return seq, err
}

// dequeue removes an identity from the queue, if it is queued.
func (e *entry) dequeue(id store.ID) error {
	w, err := e.waiter(sqlGetWaiter, e.name, id[:])
	if err != nil || w == nil {
		return err
	}
	return e.drop(w)
}

func (e *entry) drop(w *waiter) error {
	_, err := e.tx.conn.exec(sqlDeleteWaiter, e.name, w.seq)
	e.waiters--
	e.freed = true // the next waiter may be first now
	if w.id != e.asker {
		e.tx.wakes = append(e.tx.wakes, wakeUp{e.name, w.id, w.wake}) // ends its call of Wait, if any
	}
	return err
}

// wakeFirst wakes the first waiter if it can be granted now. While the name is kept closed, the
// first waiter is woken in any case. It may want to give up, and then the next one is woken.
func (e *entry) wakeFirst() error {
	w, err := e.waiter(sqlFirstWaiter, e.name)
	if err != nil || w == nil || w.id == e.asker {
		return err
	}
	wake, err := e.kept()
	if err == nil && !wake {
		wake, err = e.admits(w.mode, w.weight, w.limit)
	}
	if wake {
		e.tx.wakes = append(e.tx.wakes, wakeUp{e.name, w.id, w.wake})
	}
	return err
}

func (e *entry) wakeAll() error {
	if e.waiters == 0 {
		return nil
	}
	return e.tx.conn.each(func(row []driver.Value) error {
		w := waiterOf(row)
		e.tx.wakes = append(e.tx.wakes, wakeUp{e.name, w.id, w.wake})
		return nil
	}, sqlAllWaiters, e.name)
}

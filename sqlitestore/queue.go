package sqlitestore

import (
	"database/sql/driver"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// pollEvery is how often a waiter asks if wake-ups cannot be pushed to it.
const pollEvery = 50 * time.Millisecond

func waiterOf(row []driver.Value) *rules.Claim {
	return &rules.Claim{
		Seq: integer(row[0]), ID: idOf(row[1]),
		Mode: store.Mode(integer(row[2])), Weight: int(integer(row[3])), Limit: int(integer(row[4])),
		Addr: text(row[5]),
	}
}

// waiter runs a query that returns a waiter. It returns nil if there is none.
func (e *entry) waiter(query string, args ...driver.Value) *rules.Claim {
	if e.waiters == 0 {
		return nil
	}
	row := e.get(query, args...)
	if row == nil {
		return nil
	}
	return waiterOf(row)
}

// Waiters returns the length of the queue.
func (e *entry) Waiters() int { return e.waiters }

// Waiter returns the waiter with an identity, or nil.
func (e *entry) Waiter(id store.ID) *rules.Claim { return e.waiter(sqlGetWaiter, e.name, id[:]) }

// First returns the first waiter, or nil.
func (e *entry) First() *rules.Claim { return e.waiter(sqlFirstWaiter, e.name) }

// NotExclusive returns the first waiter that is not exclusive, or nil.
func (e *entry) NotExclusive() *rules.Claim { return e.waiter(sqlOtherUse, e.name) }

// All returns the queue.
func (e *entry) All() (all []*rules.Claim) {
	if e.waiters > 0 {
		e.each(func(row []driver.Value) { all = append(all, waiterOf(row)) }, sqlAllWaiters, e.name)
	}
	return all
}

// Ahead returns how many waiters are ahead of one, and when the first of them expires.
func (e *entry) Ahead(of *rules.Claim) (n int, due int64) {
	seq := int64(never)
	if of != nil {
		seq = of.Seq
	}
	row := e.get(sqlInFront, e.name, seq)
	if row == nil || integer(row[0]) == 0 {
		return 0, never
	}
	return int(integer(row[0])), integer(row[1])
}

// Enqueue adds a waiter at the end of the queue, or keeps its place.
func (e *entry) Enqueue(w *rules.Claim) {
	addr := e.tx.pushes.expect(e.name, w.ID)
	e.polls = addr == ""
	if w.Seq > 0 {
		e.exec(sqlKeepWaiter, w.Until, addr, w.Owner, w.Meta, e.name, w.Seq)
		return
	}
	if row := e.get(sqlLastWaiter, e.name); row != nil {
		w.Seq = integer(row[0]) + 1
	}
	e.exec(sqlAddWaiter, e.name, w.Seq, w.ID[:], int64(w.Mode), int64(w.Weight), int64(w.Limit),
		w.Since, w.Until, addr, w.Owner, w.Meta)
	e.waiters++
}

// Dequeue removes a waiter.
func (e *entry) Dequeue(w *rules.Claim) {
	e.exec(sqlDeleteWaiter, e.name, w.Seq)
	e.waiters--
}

// Wake tells a waiter to ask again, after the commit.
func (e *entry) Wake(w *rules.Claim) {
	e.tx.wakes = append(e.tx.wakes, wakeUp{e.name, w.ID, w.Addr})
}

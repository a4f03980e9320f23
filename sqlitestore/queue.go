package sqlitestore

import (
	"database/sql/driver"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

const pollEvery = 50 * time.Millisecond // how often a waiter asks if wake-ups cannot be pushed to it

// waiterOf reads waiterColumns.
func waiterOf(row []driver.Value) *rules.Claim {
	return &rules.Claim{
		Seq: integer(row[0]), ID: idOf(row[1]),
		Mode: store.Mode(integer(row[2])), Weight: int(integer(row[3])), Limit: int(integer(row[4])),
		Addr: text(row[5]),
	}
}

// waiter returns the waiter that a query finds, or nil.
func (e *entry) waiter(query string, args ...driver.Value) *rules.Claim {
	if e.waiters > 0 {
		if row := e.get(query, args...); row != nil {
			return waiterOf(row)
		}
	}
	return nil
}

func (e *entry) Waiters() int                    { return e.waiters }
func (e *entry) Waiter(id store.ID) *rules.Claim { return e.waiter(sqlGetWaiter, e.name, id[:]) }
func (e *entry) First() *rules.Claim             { return e.waiter(sqlFirstWaiter, e.name) }
func (e *entry) NotExclusive() *rules.Claim      { return e.waiter(sqlOtherUse, e.name) }

func (e *entry) All() (all []*rules.Claim) {
	if e.waiters > 0 {
		e.each(func(row []driver.Value) { all = append(all, waiterOf(row)) }, sqlAllWaiters, e.name, e.tx.now)
	}
	return all
}

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

func (e *entry) Dequeue(w *rules.Claim) {
	e.exec(sqlDeleteWaiter, e.name, w.Seq)
	e.waiters--
}

// Wake does so after the commit.
func (e *entry) Wake(w *rules.Claim) {
	e.tx.wakes = append(e.tx.wakes, wakeUp{e.name, w.ID, w.Addr})
}

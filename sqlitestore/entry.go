package sqlitestore

import (
	"database/sql/driver"
	"math"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	never            = math.MaxInt64
	unit             = time.Nanosecond // of times in the file
	asksPerHeartbeat = 3               // of a waiter, so that it keeps its place if one request is late
)

// after returns the time d after now, or never if the sum overflows.
func after(now int64, d time.Duration) int64 { return rules.After(now, d, unit) }

// A grant is a live grant or a kept record.
type grant struct {
	rules.Claim
	wall int64 // of a kept record: when it ends on the wall clock
}

// grantOf reads grantColumns.
func grantOf(row []driver.Value) *grant {
	return &grant{wall: integer(row[9]), Claim: rules.Claim{
		ID:   idOf(row[0]),
		Mode: store.Mode(integer(row[1])), Weight: int(integer(row[2])), Limit: int(integer(row[3])),
		Token: integer(row[4]), Tokens: int(integer(row[5])),
		Since: integer(row[6]), Until: integer(row[7]), State: store.State(integer(row[8])),
		Owner: text(row[10]), Meta: text(row[11]),
	}}
}

func idOf(v driver.Value) (id store.ID) {
	b, _ := v.([]byte)
	copy(id[:], b)
	return id
}

// columns returns the values in front, followed by the values of grantColumns.
func (g *grant) columns(front ...driver.Value) []driver.Value {
	return append(front, g.ID[:], int64(g.Mode), int64(g.Weight), int64(g.Limit), g.Token, int64(g.Tokens),
		g.Since, g.Until, int64(g.State), g.wall, g.Owner, g.Meta)
}

// An entry is the live state of a name within one transaction. It reads holders and waiters when they
// are asked for. Its exported methods are those of [rules.Name].
type entry struct {
	tx      *callTx
	name    string
	row     bool      // the name has a row in names
	dirty   bool      // that row must be written
	crowd   bool      // value of the column crowd
	first   *grant    // the grant in that row, if any
	others  rules.Sum // of the grants in holders, without the weight; zero if there are none
	found   *grant    // the one that was read from holders last
	waiters int
	expired bool  // a claim has expired
	polls   bool  // wake-ups cannot be pushed to the request that was queued
	err     error // of the first statement that failed
}

// onName loads a name, makes a call on it, and writes what has changed, even if the call returns an error.
func (tx *callTx) onName(name string, call func(e *entry, c *rules.Call) error) error {
	e := tx.load(name)
	c := &rules.Call{
		Name: e, Now: tx.now, Unit: unit, Freed: e.expired,
		Heartbeat: tx.heartbeat, AskWithin: tx.heartbeat / asksPerHeartbeat,
	}
	err := call(e, c)
	c.Finish()
	e.write()
	if e.err != nil {
		return e.err
	}
	return err
}

// load reads a name and removes its expired holders and waiters.
func (tx *callTx) load(name string) *entry {
	e := &entry{tx: tx, name: name}
	row := e.get(sqlGetName, name)
	if row == nil {
		return e
	}
	e.row, e.crowd = true, integer(row[0]) != 0
	if row[1] != nil {
		e.first = grantOf(row[1:])
	}
	if e.first != nil && e.first.Until <= tx.now {
		e.first, e.expired, e.dirty = nil, true, true
	}
	if !e.crowd {
		return e
	}
	holders, waiters := e.exec(sqlExpireHolders, name, tx.now), e.exec(sqlExpireWaiters, name, tx.now)
	e.expired = e.expired || holders > 0 || waiters > 0
	e.readOthers()
	if row := e.get(sqlCountWaiters, name); row != nil {
		e.waiters = int(integer(row[0]))
	}
	return e
}

// write writes the row in names, if it has changed.
func (e *entry) write() {
	crowd := e.others.Mode != 0 || e.waiters > 0
	switch {
	case e.first == nil && !crowd:
		if e.row {
			e.exec(sqlDeleteName, e.name)
		}
	case !e.dirty && e.row && crowd == e.crowd:
	case e.first == nil:
		e.exec(sqlClearName, e.name)
	default:
		e.exec(sqlPutName, e.first.columns(e.name, crowd)...)
	}
}

// exec, get and each are those of the connection. After an error, no more statements run.
func (e *entry) exec(query string, args ...driver.Value) (n int64) {
	if e.err == nil {
		n, e.err = e.tx.conn.exec(query, args...)
	}
	return n
}

func (e *entry) get(query string, args ...driver.Value) (row []driver.Value) {
	if e.err == nil {
		row, e.err = e.tx.conn.get(query, args...)
	}
	return row
}

func (e *entry) each(f func(row []driver.Value), query string, args ...driver.Value) {
	if e.err == nil {
		e.err = e.tx.conn.each(func(row []driver.Value) error { f(row); return nil }, query, args...)
	}
}

func (e *entry) readOthers() {
	e.others = rules.Sum{}
	if row := e.get(sqlAnyHolder, e.name); row != nil {
		mode := max(store.Exclusive, store.Mode(integer(row[0]))) // 0, which only another program writes, excludes everybody
		e.others = rules.Sum{Mode: mode, Limit: int(integer(row[1])), Until: integer(row[2])}
	}
}

func (e *entry) Holder(id store.ID) *rules.Claim {
	if e.first != nil && e.first.ID == id {
		return &e.first.Claim
	}
	if e.others.Mode != 0 {
		if row := e.get(sqlGetHolder, e.name, id[:]); row != nil {
			e.found = grantOf(row)
			return &e.found.Claim
		}
	}
	return nil
}

func (e *entry) Put(h *rules.Claim) {
	g := &grant{Claim: *h}
	if h.State != store.Held {
		g.wall = after(e.tx.clock.wall(), time.Duration(h.Until-e.tx.now))
	}
	if e.first == nil && !e.isFound(h) || e.first != nil && e.first.ID == h.ID {
		e.first, e.dirty = g, true
		return
	}
	e.exec(sqlPutHolder, g.columns(e.name)...)
	e.readOthers()
}

// isFound reports whether a grant is in holders.
func (e *entry) isFound(h *rules.Claim) bool { return e.found != nil && e.found.ID == h.ID }

func (e *entry) Remove(h *rules.Claim) {
	if !e.isFound(h) {
		e.first, e.dirty = nil, true
		return
	}
	e.exec(sqlDeleteHolder, e.name, h.ID[:])
	e.readOthers()
}

// Sum adds the weights in holders only if they matter.
func (e *entry) Sum(mode store.Mode) rules.Sum {
	sum := e.others
	if g := e.first; g != nil && sum.Mode == 0 {
		return rules.Sum{Mode: g.Mode, Limit: g.Limit, Weight: g.Weight, Until: g.Until}
	} else if g != nil {
		sum.Weight, sum.Until = g.Weight, min(sum.Until, g.Until)
	}
	if mode == store.Permits && sum.Mode == store.Permits {
		if row := e.get(sqlSumHolders, e.name); row != nil {
			sum.Weight += int(integer(row[0]))
		}
	}
	return sum
}

func (e *entry) Kept() bool {
	return e.first != nil && e.first.State != store.Held || e.others.Mode != 0 && e.get(sqlKeptHolder, e.name) != nil
}

func (e *entry) Oldest(n int) (holders []*rules.Claim) {
	if e.first != nil {
		holders = append(holders, &e.first.Claim)
	}
	if e.others.Mode != 0 {
		e.each(func(row []driver.Value) { holders = append(holders, &grantOf(row).Claim) },
			sqlOldestHolders, e.name, e.tx.now, int64(n))
	}
	return rules.Oldest(holders, n)
}

package sqlitestore

import (
	"database/sql/driver"
	"math"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const never = math.MaxInt64

// after returns the time d after now, or never if the sum overflows.
func after(now int64, d time.Duration) int64 {
	if end := now + int64(d); end >= now || d < 0 {
		return end
	}
	return never
}

// A grant is a live grant or a kept record.
type grant struct {
	id     store.ID
	mode   store.Mode
	weight int
	limit  int
	token  int64 // first of the newest block
	tokens int
	since  int64
	until  int64
	state  store.State
	wall   int64 // of a kept record: when it ends on the wall clock
	owner  string
	meta   string
}

// grantOf reads grantColumns.
func grantOf(row []driver.Value) *grant {
	g := &grant{
		mode: store.Mode(integer(row[1])), weight: int(integer(row[2])), limit: int(integer(row[3])),
		token: integer(row[4]), tokens: int(integer(row[5])),
		since: integer(row[6]), until: integer(row[7]),
		state: store.State(integer(row[8])), wall: integer(row[9]),
		owner: text(row[10]), meta: text(row[11]),
	}
	g.id = idOf(row[0])
	return g
}

func idOf(v driver.Value) (id store.ID) {
	b, _ := v.([]byte)
	copy(id[:], b)
	return id
}

// columns returns the values in front, followed by the values of grantColumns.
func (g *grant) columns(front ...driver.Value) []driver.Value {
	return append(front, g.id[:], int64(g.mode), int64(g.weight), int64(g.limit), g.token, int64(g.tokens),
		g.since, g.until, int64(g.state), g.wall, g.owner, g.meta)
}

func (g *grant) holder(now int64) store.Holder {
	return store.Holder{
		ID: g.id, Owner: g.owner, Meta: g.meta,
		Mode: g.mode, Weight: g.weight, Token: g.token, State: g.state,
		Age: time.Duration(now - g.since), Left: time.Duration(g.until - now),
	}
}

// An entry is the live state of a name within one transaction.
//
// Holders that are not exclusive all have the same mode and limit, because no other request
// is granted beside them.
type entry struct {
	tx      *callTx
	name    string
	row     bool   // the name has a row in names
	dirty   bool   // that row must be written
	crowd   bool   // value of the column crowd
	first   *grant // the grant in that row, if any
	others  others
	waiters int

	asker store.ID // the identity that makes the request; it gets a reply and needs no wake-up
	freed bool     // the first waiter may be granted now
}

// others says what the grants in holders have in common.
type others struct {
	some  bool // there are such grants
	mode  store.Mode
	limit int
	due   int64 // no grant ends before this time
}

// load reads a name and removes its expired holders and waiters.
func (tx *callTx) load(name string) (*entry, error) {
	e := &entry{tx: tx, name: name}
	row, err := tx.conn.get(sqlGetName, name)
	if err != nil || row == nil {
		return e, err
	}
	e.row, e.crowd = true, integer(row[0]) != 0
	if row[1] != nil {
		e.first = grantOf(row[1:])
	}
	if e.first != nil && e.first.until <= tx.now {
		e.first, e.freed, e.dirty = nil, true, true
	}
	if !e.crowd {
		return e, nil
	}
	n, err := tx.conn.exec(sqlExpireHolders, name, tx.now)
	if err != nil {
		return nil, err
	}
	m, err := tx.conn.exec(sqlExpireWaiters, name, tx.now)
	if err != nil {
		return nil, err
	}
	e.freed = e.freed || n > 0 || m > 0
	if err := e.readOthers(); err != nil {
		return nil, err
	}
	row, err = tx.conn.get(sqlCountWaiters, name)
	if err == nil {
		e.waiters = int(integer(row[0]))
	}
	return e, err
}

// loadGrant loads a name, and the grant or the kept record of an identity.
func (tx *callTx) loadGrant(name string, id store.ID) (*entry, *grant, error) {
	e, err := tx.load(name)
	if err != nil {
		return nil, nil, err
	}
	g, err := e.find(id)
	return e, g, err
}

// readOthers reads what the grants in holders have in common.
func (e *entry) readOthers() error {
	row, err := e.tx.conn.get(sqlAnyHolder, e.name)
	e.others = others{}
	if row != nil {
		e.others = others{some: true, mode: store.Mode(integer(row[0])), limit: int(integer(row[1])), due: integer(row[2])}
	}
	return err
}

// store writes back the changes, and collects the wake-up of the first waiter if it may be
// granted.
func (e *entry) store() error {
	conn := e.tx.conn
	crowd := e.others.some || e.waiters > 0
	var err error
	switch {
	case e.first == nil && !crowd:
		if e.row {
			_, err = conn.exec(sqlDeleteName, e.name)
		}
	case !e.dirty && e.row && crowd == e.crowd:
	case e.first == nil:
		_, err = conn.exec(sqlClearName, e.name, int64(1))
	default:
		_, err = conn.exec(sqlPutName, e.first.columns(e.name, flag(crowd))...)
	}
	if err == nil && e.freed && e.waiters > 0 {
		err = e.wakeFirst()
	}
	return err
}

// storeThen stores the removal of expired holders and waiters, and then returns err.
func (e *entry) storeThen(err error) error {
	if storeErr := e.store(); storeErr != nil {
		return storeErr
	}
	return err
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// find returns the grant or the kept record of an identity, or nil if there is none.
func (e *entry) find(id store.ID) (*grant, error) {
	if e.first != nil && e.first.id == id {
		return e.first, nil
	}
	if !e.others.some {
		return nil, nil
	}
	row, err := e.tx.conn.get(sqlGetHolder, e.name, id[:])
	if err != nil || row == nil {
		return nil, err
	}
	return grantOf(row), nil
}

// add adds a new grant.
func (e *entry) add(g *grant) error {
	if e.first == nil {
		e.first, e.dirty = g, true
		return nil
	}
	if _, err := e.tx.conn.exec(sqlPutHolder, g.columns(e.name)...); err != nil {
		return err
	}
	return e.readOthers()
}

// update stores a change of a grant that find returned.
func (e *entry) update(g *grant) error {
	if g == e.first {
		e.dirty = true
		return nil
	}
	if _, err := e.tx.conn.exec(sqlPutHolder, g.columns(e.name)...); err != nil {
		return err
	}
	return e.readOthers()
}

func (e *entry) remove(g *grant) error {
	e.freed = true
	if g == e.first {
		e.first, e.dirty = nil, true
		return nil
	}
	if _, err := e.tx.conn.exec(sqlDeleteHolder, e.name, g.id[:]); err != nil {
		return err
	}
	return e.readOthers()
}

// keep turns a grant into a kept record.
func (e *entry) keep(g *grant, keep store.Keep) error {
	g.state, g.since, g.until = keep.State, e.tx.now, after(e.tx.now, keep.For)
	g.wall = after(e.tx.clock.wall(), keep.For)
	e.freed = true // the first waiter may want to give up
	return e.update(g)
}

// admits reports whether a request can be granted beside the holders.
func (e *entry) admits(mode store.Mode, weight, limit int) (bool, error) {
	var u store.Usage
	if e.first != nil {
		u.Add(e.first.mode, e.first.weight, e.first.limit)
	}
	if e.others.some {
		others := 0
		if e.others.mode == store.Permits && mode == store.Permits { // otherwise the weight does not matter
			row, err := e.tx.conn.get(sqlSumHolders, e.name)
			if err != nil {
				return false, err
			}
			others = int(integer(row[0]))
		}
		u.Add(e.others.mode, others, e.others.limit)
	}
	return u.Admits(mode, weight, limit), nil
}

// kept reports whether a kept record closes the name.
func (e *entry) kept() (bool, error) {
	if e.first != nil && e.first.state != store.Held {
		return true, nil
	}
	if !e.others.some {
		return false, nil
	}
	row, err := e.tx.conn.get(sqlKeptHolder, e.name)
	return row != nil, err
}

// mixes returns an error that matches store.ErrInvalid if the request can never be combined
// with a holder or a waiter.
func (e *entry) mixes(req *store.Request) error {
	if req.Mode == store.Exclusive {
		return nil
	}
	if g := e.first; g != nil {
		if err := store.Mixes(req.Name, req.Mode, req.Limit, g.mode, g.limit); err != nil {
			return err
		}
	}
	if e.others.some {
		if err := store.Mixes(req.Name, req.Mode, req.Limit, e.others.mode, e.others.limit); err != nil {
			return err
		}
	}
	if e.waiters == 0 {
		return nil
	}
	row, err := e.tx.conn.get(sqlOtherUse, e.name) // all waiters that are not exclusive have the same mode and limit
	if err != nil || row == nil {
		return err
	}
	return store.Mixes(req.Name, req.Mode, req.Limit, store.Mode(integer(row[0])), int(integer(row[1])))
}

package memstore

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// sweepNames is how many names each call looks at to remove expired claims. Names that are never
// used again are removed within about as many calls as there are names. One name would not do: a
// call can add one at the end of the list, and the end would never be reached.
const sweepNames = 2

// indexFrom is the number of holders of a name above which a map finds them. A semaphore can have
// many, and each of them is renewed.
const indexFrom = 16

// A table holds the locks of one store. Several handles may share it.
type table struct {
	base time.Time

	mu    sync.Mutex
	names map[string]*entry
	list  []*entry // the same entries, to sweep one after the other
	hand  int      // index in list of the entry that was swept last
	most  int      // entries since names was made
	waits map[wake.Key]*wake.Signal
	last  int64 // highest token issued

	// These are used again, so that a pair of calls allocates one claim.
	current rules.Call
	spare   *entry // without claims; may be nil
}

// An entry is a name that has holders or waiters. It implements [rules.Name].
type entry struct {
	rules.Loaded
	table *table
	name  string
	index int                       // in table.list, or -1
	due   int64                     // no claim expires before this time
	byID  map[store.ID]*rules.Claim // the holders, if there are many
}

func newTable() *table {
	return &table{base: time.Now(), names: make(map[string]*entry), waits: make(map[wake.Key]*wake.Signal)}
}

// call makes a call on a name.
func (t *table) call(name string, f func(c *rules.Call) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	e := t.names[name]
	if e == nil {
		e, t.spare = t.spare, nil
		if e == nil {
			e = &entry{table: t}
		}
		e.name, e.index, e.due = name, -1, math.MaxInt64
	}
	err := e.call(now, f)
	for i := 0; i < sweepNames && len(t.list) > 0; i++ {
		t.hand = (t.hand + 1) % len(t.list)
		if e := t.list[t.hand]; e.due <= now {
			e.call(now, func(*rules.Call) error { return nil })
		}
	}
	return err
}

// now returns the time since the table was created, on the monotonic clock.
func (t *table) now() int64 { return int64(time.Since(t.base)) }

// call removes expired claims, calls f, and wakes the first waiter if it may be granted now. Then it
// adds the entry to the table, or removes it if it has no claims.
func (e *entry) call(now int64, f func(c *rules.Call) error) error {
	c := &e.table.current
	*c = rules.Call{Name: e, Now: now, Unit: 1, Heartbeat: heartbeat, AskWithin: askWithin}
	if e.due <= now {
		e.expire(c)
	}
	err := f(c)
	c.Finish()
	switch empty := e.Empty(); {
	case !empty && e.index < 0:
		e.table.add(e)
	case empty && e.index >= 0:
		e.table.remove(e)
	}
	if e.Empty() {
		e.table.spare, e.byID = e, nil
	}
	return err
}

// expire removes expired claims.
func (e *entry) expire(c *rules.Call) {
	now := c.Now
	e.due = math.MaxInt64
	for i := len(e.Holders) - 1; i >= 0; i-- {
		if h := e.Holders[i]; h.Until <= now {
			e.Remove(h)
			c.Freed = true
		} else {
			e.due = min(e.due, h.Until)
		}
	}
	for i := len(e.Queue) - 1; i >= 0; i-- {
		if w := e.Queue[i]; w.Until <= now {
			e.Dequeue(w)
			c.Freed = true
		} else {
			e.due = min(e.due, w.Until)
		}
	}
}

// has reports whether f returns true for a holder or a waiter.
func (e *entry) has(f func(c *rules.Claim) bool) bool {
	return slices.ContainsFunc(e.Holders, f) || slices.ContainsFunc(e.Queue, f)
}

func (t *table) add(e *entry) {
	e.index = len(t.list)
	t.list = append(t.list, e)
	t.names[e.name] = e
	t.most = max(t.most, len(t.list))
}

// remove removes an entry. The last one in the list takes its place there.
func (t *table) remove(e *entry) {
	end := len(t.list) - 1
	t.list[e.index] = t.list[end]
	t.list[e.index].index = e.index
	t.list[end] = nil
	t.list = t.list[:end]
	delete(t.names, e.name)
	e.index = -1
	if end == 0 && t.most > 1000 { // maps do not shrink
		t.names, t.list, t.most = make(map[string]*entry), nil, 0
	}
}

// Holder returns the holder with an identity, or nil.
func (e *entry) Holder(id store.ID) *rules.Claim {
	if e.byID != nil {
		return e.byID[id]
	}
	return e.Loaded.Holder(id)
}

// Put adds a holder, unless it has it already.
func (e *entry) Put(h *rules.Claim) {
	e.due = min(e.due, h.Until)
	if e.Holder(h.ID) != nil {
		return
	}
	e.Holders = append(e.Holders, h)
	if e.byID == nil && len(e.Holders) > indexFrom {
		e.byID = make(map[store.ID]*rules.Claim)
		for _, h := range e.Holders {
			e.byID[h.ID] = h
		}
	} else if e.byID != nil {
		e.byID[h.ID] = h
	}
}

// Remove removes a holder.
func (e *entry) Remove(h *rules.Claim) {
	e.Loaded.Remove(h)
	delete(e.byID, h.ID)
}

// Enqueue adds a waiter, or keeps its place.
func (e *entry) Enqueue(w *rules.Claim) {
	e.Loaded.Enqueue(w)
	e.due = min(e.due, w.Until)
	key := wake.Key{Name: e.name, ID: w.ID}
	if e.table.waits[key] == nil {
		e.table.waits[key] = new(wake.Signal)
	}
	e.table.waits[key].Reset()
}

// Dequeue removes a waiter and ends its Wait.
func (e *entry) Dequeue(w *rules.Claim) {
	e.Loaded.Dequeue(w)
	e.Wake(w)
	delete(e.table.waits, wake.Key{Name: e.name, ID: w.ID})
}

// Wake tells a waiter to ask again.
func (e *entry) Wake(w *rules.Claim) {
	if signal := e.table.waits[wake.Key{Name: e.name, ID: w.ID}]; signal != nil {
		signal.Send()
	}
}

// woken returns a channel that is closed when a waiter should ask again. It is nil if it should ask
// now or is not queued.
func (t *table) woken(key wake.Key) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if signal := t.waits[key]; signal != nil {
		return signal.C()
	}
	return nil
}

// Reserve issues up to n consecutive tokens above floor, at least one.
func (e *entry) Reserve(n int, floor int64) (first int64, tokens int, err error) {
	if err := e.Raise(floor); err != nil {
		return 0, 0, err
	}
	last := &e.table.last
	if *last >= store.MaxToken {
		return 0, 0, store.NoTokens(*last)
	}
	first = *last + 1
	*last = min(*last+int64(rules.Block(n)), store.MaxToken)
	return first, int(*last - first + 1), nil
}

// Raise makes all later tokens greater than floor.
func (e *entry) Raise(floor int64) error {
	if floor >= store.MaxToken && floor > e.table.last {
		return store.NoTokens(floor)
	}
	e.table.last = max(e.table.last, floor)
	return nil
}

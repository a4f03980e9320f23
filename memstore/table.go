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

// sweepNames is how many names each call looks at to remove expired claims. One would not do: a call can
// add a name at the end of the list, and the end would never be reached.
const sweepNames = 2

// indexFrom is the number of holders of a name above which a map finds them.
const indexFrom = 16

// A table holds the locks of one store. Several handles may share it.
type table struct {
	base    time.Time
	handles int // that were opened by URL; guarded by shared

	mu    sync.Mutex
	names map[string]*entry
	list  []*entry             // the same entries, to sweep one after the other
	hand  int                  // index in list of the entry that was swept last
	most  int                  // entries since names was made
	waits wake.Table[struct{}] // as long as they are in queues
	last  int64                // highest token issued

	// These are used again, so that a pair of calls allocates one claim.
	current rules.Call
	spare   *entry // without claims; may be nil
}

// An entry is a name that has holders or waiters. Its exported methods are those of [rules.Name].
type entry struct {
	rules.Loaded
	table *table
	name  string
	index int                       // in table.list, or -1
	due   int64                     // no claim expires before this time
	byID  map[store.ID]*rules.Claim // the holders, if there are many
}

func newTable() *table {
	return &table{base: time.Now(), names: make(map[string]*entry), waits: wake.Table[struct{}]{Keep: math.MaxInt64}}
}

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

// call removes expired claims, calls f, wakes the first waiter if it may be granted now, and keeps the
// entry in the table if it has claims.
func (e *entry) call(now int64, f func(c *rules.Call) error) error {
	c := &e.table.current
	*c = rules.Call{Name: e, Now: now, Unit: 1, Heartbeat: heartbeat, AskWithin: askWithin}
	if e.due <= now {
		e.expire(c)
	}
	err := f(c)
	c.Finish()
	if e.Empty() {
		if e.index >= 0 {
			e.table.remove(e)
		}
		e.table.spare, e.byID = e, nil
	} else if e.index < 0 {
		e.table.add(e)
	}
	return err
}

func (e *entry) expire(c *rules.Call) {
	e.due = math.MaxInt64
	drop := func(claims []*rules.Claim, remove func(*rules.Claim)) {
		for _, claim := range slices.Backward(claims) {
			if claim.Until <= c.Now {
				remove(claim)
				c.Freed = true
			} else {
				e.due = min(e.due, claim.Until)
			}
		}
	}
	drop(e.Holders, e.Remove)
	drop(e.Queue, e.Dequeue)
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

// namesAfter returns the first n names, in order, that have the prefix, follow the cursor, and have
// holders or waiters. It sorts the names in parts, and skips those that cannot be among the first n.
func (t *table) namesAfter(prefix, cursor string, n int) []string {
	var names []string
	end := rules.PrefixEnd(prefix)
	first := func() {
		slices.Sort(names)
		if len(names) > n {
			names, end = names[:n], names[n]
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	live := func(c *rules.Claim) bool { return c.Until > now }
	for _, e := range t.list {
		if e.name > cursor && e.name >= prefix && e.name < end &&
			(slices.ContainsFunc(e.Holders, live) || slices.ContainsFunc(e.Queue, live)) {
			if names = append(names, e.name); len(names) > 2*n {
				first()
			}
		}
	}
	first()
	return names
}

func (e *entry) Holder(id store.ID) *rules.Claim {
	if e.byID != nil {
		return e.byID[id]
	}
	return e.Loaded.Holder(id)
}

func (e *entry) Put(h *rules.Claim) {
	e.due = min(e.due, h.Until)
	if e.Holder(h.ID) != nil {
		return
	}
	e.Holders = append(e.Holders, h)
	if e.byID != nil {
		e.byID[h.ID] = h
	} else if len(e.Holders) > indexFrom {
		e.byID = make(map[store.ID]*rules.Claim)
		for _, h := range e.Holders {
			e.byID[h.ID] = h
		}
	}
}

func (e *entry) Remove(h *rules.Claim) {
	e.Loaded.Remove(h)
	delete(e.byID, h.ID)
}

func (e *entry) Enqueue(w *rules.Claim) {
	e.Loaded.Enqueue(w)
	e.due = min(e.due, w.Until)
	e.table.waits.Expect(wake.Key{Name: e.name, ID: w.ID})
}

// Dequeue also ends the Wait of the waiter.
func (e *entry) Dequeue(w *rules.Claim) {
	e.Loaded.Dequeue(w)
	e.table.waits.Forget(wake.Key{Name: e.name, ID: w.ID})
}

func (e *entry) Wake(w *rules.Claim) { e.table.waits.Wake(wake.Key{Name: e.name, ID: w.ID}) }

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

func (e *entry) Raise(floor int64) error {
	if floor >= store.MaxToken && floor > e.table.last {
		return store.NoTokens(floor)
	}
	e.table.last = max(e.table.last, floor)
	return nil
}

package memstore

import (
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// indexFrom is the number of holders of a name above which they are indexed by a map. For
// fewer holders a linear search is as fast and needs no memory.
const indexFrom = 16

// A claim is the common part of holders and waiters.
type claim struct {
	id     store.ID
	owner  string
	meta   string
	weight int32
	limit  int32
	mode   store.Mode
	state  store.State // only of holders
}

// A holder is a live grant or a kept record.
type holder struct {
	claim
	tokens     int32 // in the newest block
	token      int64 // first token of that block
	since      int64 // when it was granted or closed
	until      int64 // when it ends
	prev, next *holder
}

// An entry is a name with holders or waiters.
//
// Holders that are not exclusive all have the same mode and limit, because no other request
// is granted beside them.
type entry struct {
	name        string
	hash        uint64
	next        *entry  // in its bucket
	first, last *holder // in the order in which they were granted
	index       map[store.ID]*holder
	queue       queue
	weight      int64 // sum over all holders
	holders     int32
	kept        int32 // how many holders are kept records
	due         int64 // no holder or waiter ends before this time
	one         holder
}

func (c *claim) set(req *store.Request) {
	c.id, c.owner, c.meta = req.ID, req.Owner, req.Meta
	c.mode, c.weight, c.limit = req.Mode, int32(req.Weight), int32(req.Limit)
}

func (c *claim) same(req *store.Request) error {
	return store.SameClaim(req, c.mode, int(c.weight), int(c.limit))
}

func (e *entry) empty() bool { return e.first == nil && e.queue.first == nil }

func (e *entry) find(id store.ID) *holder {
	if e == nil {
		return nil
	}
	if e.index != nil {
		return e.index[id]
	}
	for h := e.first; h != nil; h = h.next {
		if h.id == id {
			return h
		}
	}
	return nil
}

func (e *entry) grant(req *store.Request, token int64, tokens int, now int64) {
	h := &e.one // saves an allocation, and most names have one holder
	if h.mode != 0 {
		h = new(holder)
	}
	h.claim.set(req)
	h.token, h.tokens = token, int32(tokens)
	h.since = now
	if h.prev = e.last; h.prev == nil {
		e.first = h
	} else {
		h.prev.next = h
	}
	e.last = h
	e.holders++
	e.weight += int64(h.weight)
	e.extend(h, after(now, req.TTL))
	switch {
	case e.index != nil:
		e.index[h.id] = h
	case e.holders > indexFrom:
		e.index = make(map[store.ID]*holder, 2*indexFrom)
		for h := e.first; h != nil; h = h.next {
			e.index[h.id] = h
		}
	}
}

func (e *entry) extend(h *holder, until int64) {
	h.until = until
	e.due = min(e.due, until)
}

// keep turns a grant into a kept record.
func (e *entry) keep(h *holder, keep store.Keep, now int64) {
	h.state, h.since = keep.State, now
	e.kept++
	e.extend(h, after(now, keep.For))
}

func (e *entry) remove(h *holder) {
	if h.prev == nil {
		e.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		e.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	e.holders--
	e.weight -= int64(h.weight)
	if h.state != store.Held {
		e.kept--
	}
	if e.index != nil {
		delete(e.index, h.id)
	}
	if h == &e.one {
		*h = holder{}
	}
}

// settle removes the holders and waiters that have expired by now, and wakes the head of the
// queue if it can be granted.
func (e *entry) settle(now int64) {
	if now < e.due {
		return
	}
	e.due = never
	before := e.holders
	for h := e.first; h != nil; {
		next := h.next
		if h.until <= now {
			e.remove(h)
		} else {
			e.due = min(e.due, h.until)
		}
		h = next
	}
	for w := e.queue.first; w != nil; {
		next := w.next
		if w.until <= now {
			e.dequeue(w)
		} else {
			e.due = min(e.due, w.until)
		}
		w = next
	}
	if e.holders < before {
		e.wakeHead()
	}
}

// admits reports whether a request can be granted beside the holders.
func (e *entry) admits(mode store.Mode, weight, limit int) bool {
	var u store.Usage
	if e.first != nil {
		u.Add(e.first.mode, int(e.weight), int(e.first.limit))
	}
	return u.Admits(mode, weight, limit)
}

// mixes returns an error that matches store.ErrInvalid if the request can never be combined
// with a holder or a waiter.
func (e *entry) mixes(req *store.Request) error {
	if req.Mode == store.Exclusive {
		return nil
	}
	if h := e.first; h != nil {
		if err := store.Mixes(req.Name, req.Mode, req.Limit, h.mode, int(h.limit)); err != nil {
			return err
		}
	}
	for w := e.queue.first; w != nil; w = w.next {
		if err := store.Mixes(req.Name, req.Mode, req.Limit, w.mode, int(w.limit)); err != nil {
			return err
		}
		if w.mode != store.Exclusive {
			break // all other waiters that are not exclusive are like this one
		}
	}
	return nil
}

// listHolders describes at most limit holders, the oldest first, or all if limit is 0.
func (e *entry) listHolders(limit int, now int64) []store.Holder {
	n := int(e.holders)
	if limit > 0 {
		n = min(n, limit)
	}
	if n == 0 {
		return nil
	}
	list := make([]store.Holder, 0, n)
	for h := e.first; len(list) < n; h = h.next {
		list = append(list, store.Holder{
			ID: h.id, Owner: h.owner, Meta: h.meta,
			Mode: h.mode, Weight: int(h.weight), Token: h.token, State: h.state,
			Age: time.Duration(now - h.since), Left: time.Duration(h.until - now),
		})
	}
	return list
}

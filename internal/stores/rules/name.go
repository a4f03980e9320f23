package rules

import (
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Claim is a grant, a kept record or a waiter of a name. Times are on the clock of the store, in
// units of Call.Unit.
type Claim struct {
	ID     store.ID
	Owner  string
	Meta   string
	Mode   store.Mode
	Weight int
	Limit  int
	Since  int64 // when it was granted, kept or queued
	Until  int64 // when it expires

	// Only of holders.
	State  store.State
	Token  int64 // first of the newest block
	Tokens int

	// Only of waiters.
	Seq   int64  // order of arrival, from 1; set by the store
	Woken bool   // since its last refusal; set by the store
	Addr  string // where the store wakes it, if it needs that
}

// A Sum is what the holders of a name have in common. They have the same mode and limit, because no
// other request is granted beside them. It is zero if there are none.
type Sum struct {
	Mode   store.Mode
	Limit  int
	Weight int   // of all holders; not needed unless both they and the request are for permits
	Until  int64 // when the first of them expires
}

// A Name is a name within one call of a store. Its holders are its grants and kept records. None of
// its claims has expired. A store that can fail to read or write keeps the error, and ignores the
// outcome of the call.
type Name interface {
	Holder(id store.ID) *Claim // nil if there is none
	Sum(mode store.Mode) Sum   // of all holders, for a request in this mode
	Kept() bool                // whether a holder is a kept record
	Oldest(n int) []*Claim     // at most n holders, the oldest first
	Put(h *Claim)              // adds a holder, or writes one that Holder returned
	Remove(h *Claim)

	Waiters() int
	Waiter(id store.ID) *Claim // nil if it is not queued
	First() *Claim             // nil if the queue is empty
	NotExclusive() *Claim      // a waiter of another mode than Exclusive, or nil
	All() []*Claim             // the queue, in order of arrival
	// Ahead returns the number of waiters ahead of one, or of all if it is nil, and the time at which
	// the first of them expires.
	Ahead(of *Claim) (n int, due int64)
	Enqueue(w *Claim) // adds a waiter at the end, or writes one that has a Seq
	Dequeue(w *Claim)
	Wake(w *Claim) // tells it to ask again

	// Reserve issues up to n consecutive tokens above floor, at least one. Raise makes all later
	// tokens greater than floor.
	Reserve(n int, floor int64) (first int64, tokens int, err error)
	Raise(floor int64) error
}

// MaxBlock bounds a block of tokens, so that no caller exhausts them.
const MaxBlock = 4096

// Block returns how many tokens to issue for a request that asks for n.
func Block(n int) int { return min(max(n, 1), MaxBlock) }

func newClaim(req *store.Request, now int64) *Claim {
	return &Claim{
		ID: req.ID, Owner: req.Owner, Meta: req.Meta,
		Mode: req.Mode, Weight: req.Weight, Limit: req.Limit, Since: now,
	}
}

// Holder describes a holder. The age is not negative even if the clock was set back.
func (c *Claim) Holder(now int64, unit time.Duration) store.Holder {
	return store.Holder{
		ID: c.ID, Owner: c.Owner, Meta: c.Meta, Mode: c.Mode, Weight: c.Weight, Token: c.Token, State: c.State,
		Age: max(0, time.Duration(now-c.Since)*unit), Left: time.Duration(c.Until-now) * unit,
	}
}

// Waiter describes a waiter.
func (c *Claim) Waiter(now int64, unit time.Duration) store.Waiter {
	return store.Waiter{
		ID: c.ID, Owner: c.Owner, Meta: c.Meta, Mode: c.Mode, Weight: c.Weight,
		Age: max(0, time.Duration(now-c.Since)*unit),
	}
}

const (
	pageSize = 100    // names on a page by default: one or two screens of text
	maxPage  = 10_000 // names on a page at most
)

// PageSize returns how many names to return for a query.
func PageSize(q store.Query) int {
	if q.Limit <= 0 {
		return pageSize
	}
	return min(q.Limit, maxPage)
}

// PrefixEnd returns the first string after all names with a prefix, in the order of their bytes.
func PrefixEnd(prefix string) string {
	if prefix == "" {
		return "\xff" // no byte of UTF-8
	}
	end := []byte(prefix)
	end[len(end)-1]++
	return string(end)
}

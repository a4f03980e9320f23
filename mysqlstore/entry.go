package mysqlstore

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/internal/unanswered"
	"github.com/holdfast-lock/holdfast/store"
)

// A grant is a live grant or a kept record. Times are in µs.
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
	owner  string
	meta   string
	dirty  bool // its row has to be written
}

// A waiter is a queued request.
type waiter struct {
	grant // its grant has no tokens
	name  string
	seq   int64
	rung  bool // it was told to ask again
	ring  bool // it is being told so
}

// Bits of the column special. The single statements leave rows with any of them to transactions.
const (
	hasClaims = 1 << iota
	isClosed
)

// seqEnded marks a claim that is neither a holder nor a waiter: see entry.ended.
const seqEnded = -1

// key returns the condition for the row of a waiter, or of a holder if seq is 0.
func (w *waiter) key() string { return claimKey(w.name, w.seq, w.id) }

func claimKey(name string, seq int64, id store.ID) string {
	return fmt.Sprintf("name = %s AND seq = %d AND id = %s", literal(name), seq, idLiteral(id))
}

// An entry holds the live grants and waiters of a name, within one transaction.
//
// Holders that are not exclusive all have the same mode and limit, because no other request is
// granted beside them.
type entry struct {
	s       *Store
	name    string
	now     int64 // by the server's clock
	usable  bool  // this version of the package may grant the name
	row     bool  // there is one in names
	special int   // as it was read
	last    int64 // tokens granted later are greater

	first   *grant   // in the row of the name
	others  []*grant // holders in the claims
	waiters []*waiter
	drops   []string // claims to delete

	// ended are identities that released the name or left while one of their requests had no
	// reply. Such a request may arrive later and must not be granted, because no client would
	// know of the grant.
	ended []*grant

	dirty bool     // the row has to be written
	asker store.ID // the identity that makes the request; it gets a reply and needs no wake-up
	freed bool     // the first waiter may be granted now
	woken []*waiter
}

// finish returns the waiters to wake after one call.
func (e *entry) finish() []*waiter {
	if e.freed {
		e.wakeFirst()
	}
	woken := e.woken
	e.freed, e.woken = false, nil
	return woken
}

// values returns the row of the name, or an empty string if it did not change.
func (e *entry) values() string {
	special := 0
	if len(e.others) > 0 || len(e.waiters) > 0 || len(e.ended) > 0 {
		special |= hasClaims
	}
	if e.first != nil && e.first.state != store.Held {
		special |= isClosed
	}
	if !e.row || !e.dirty && special == e.special {
		return ""
	}
	g := e.first
	if g == nil {
		g = new(grant)
	}
	return fmt.Sprintf("(%s, %d, %d, %s)", literal(e.name), special, e.last, g.values())
}

// noteEnd records that a later request of an identity must not be granted.
func (e *entry) noteEnd(id store.ID) {
	if e.row && !e.hasEnded(id) {
		e.ended = append(e.ended, &grant{id: id, since: e.now, until: e.now + unanswered.Late.Microseconds(), dirty: true})
	}
}

func (e *entry) hasEnded(id store.ID) bool {
	return slices.ContainsFunc(e.ended, func(g *grant) bool { return g.id == id })
}

// find returns the grant or the kept record of an identity, or nil if there is none.
func (e *entry) find(id store.ID) *grant {
	if e.first != nil && e.first.id == id {
		return e.first
	}
	for _, g := range e.others {
		if g.id == id {
			return g
		}
	}
	return nil
}

// held returns the live grant of an identity, or nil if there is none.
func (e *entry) held(id store.ID) *grant {
	if g := e.find(id); g != nil && g.state == store.Held {
		return g
	}
	return nil
}

func (e *entry) add(g *grant) {
	if e.first == nil {
		e.first, e.dirty = g, true
		return
	}
	g.dirty = true
	e.others = append(e.others, g)
}

// changed records that a grant has changed.
func (e *entry) changed(g *grant) {
	g.dirty = true
	e.dirty = e.dirty || g == e.first
}

func (e *entry) remove(g *grant) {
	e.freed = true
	if g == e.first {
		e.first, e.dirty = nil, true
		return
	}
	e.others = slices.DeleteFunc(e.others, func(other *grant) bool { return other == g })
	e.drops = append(e.drops, claimKey(e.name, 0, g.id))
}

// keep turns a grant into a kept record.
func (e *entry) keep(g *grant, keep store.Keep) {
	g.state, g.since, g.until = keep.State, e.now, e.now+keep.For.Microseconds()
	e.changed(g)
	e.freed = true // the first waiter may want to give up
	if keep.State == store.Done {
		for _, w := range e.waiters {
			e.wake(w)
		}
	}
}

// grants returns all grants and kept records.
func (e *entry) grants() []*grant {
	if e.first == nil {
		return e.others
	}
	return append([]*grant{e.first}, e.others...)
}

// admits reports whether a request fits beside the holders.
func (e *entry) admits(mode store.Mode, weight, limit int) bool {
	var u store.Usage
	for _, g := range e.grants() {
		u.Add(g.mode, g.weight, g.limit)
	}
	return u.Admits(mode, weight, limit)
}

// mixes returns an ErrInvalid if the request can never be combined with the current holders and
// waiters.
func (e *entry) mixes(req *store.Request) error {
	for _, g := range e.grants() {
		if err := store.Mixes(req.Name, req.Mode, req.Limit, g.mode, g.limit); err != nil {
			return err
		}
	}
	for _, w := range e.waiters {
		if w.id == req.ID {
			continue
		}
		if err := store.Mixes(req.Name, req.Mode, req.Limit, w.mode, w.limit); err != nil {
			return err
		}
	}
	return nil
}

// reserve issues up to n consecutive tokens above floor, at least one.
func (e *entry) reserve(n int, floor int64) (first int64, tokens int, err error) {
	first = max(e.now, e.last+1, floor+1)
	if first > store.MaxToken {
		return 0, 0, store.NoTokens(max(e.last, floor))
	}
	tokens = int(min(int64(blockOf(n)), store.MaxToken-first+1))
	e.last, e.dirty = first+int64(tokens)-1, true
	return first, tokens, nil
}

// raise makes all later tokens of the name greater than floor.
func (e *entry) raise(floor int64) error {
	if floor >= store.MaxToken {
		return store.NoTokens(floor)
	}
	if floor > e.last {
		e.last, e.dirty = floor, true
	}
	return nil
}

// maxBlock bounds a block of tokens, so that no caller uses up the tokens of others.
const maxBlock = 4096

func blockOf(n int) int { return min(max(n, 1), maxBlock) }

// holders describes at most limit holders, the oldest first.
func (e *entry) holders(limit int) []store.Holder {
	return describe(e.grants(), e.now, limit)
}

func describe(grants []*grant, now int64, limit int) []store.Holder {
	grants = slices.Clone(grants)
	slices.SortStableFunc(grants, func(a, b *grant) int { return cmp.Compare(a.since, b.since) })
	var list []store.Holder
	for _, g := range grants[:min(len(grants), limit)] {
		list = append(list, g.holder(now))
	}
	return list
}

func (g *grant) holder(now int64) store.Holder {
	return store.Holder{
		ID: g.id, Owner: g.owner, Meta: g.meta,
		Mode: g.mode, Weight: g.weight, Token: g.token, State: g.state,
		Age: micros(max(0, now-g.since)), Left: micros(g.until - now),
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

package mysqlstore

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/expiring"
	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	unit = time.Microsecond // of times in the tables

	// heartbeat is how long a waiter that stopped asking keeps its place and delays the next one.
	heartbeat = 5 * time.Second
)

// Bits of the column special. The single statements leave rows with any of them to transactions, except
// that they extend grants.
const (
	hasClaims = 1 << iota
	isClosed
)

// seqEnded marks a claim that is neither a holder nor a waiter: see entry.ended.
const seqEnded = -1

// claimKey returns the condition for the row of a waiter, or of a holder if seq is 0.
func claimKey(name string, seq int64, id store.ID) string {
	return fmt.Sprintf("(name = %s AND seq = %d AND id = %s)", literal(name), seq, idLiteral(id))
}

// An entry is the [rules.Name] of one transaction. It records what has to be written.
type entry struct {
	rules.Loaded
	s       *Store
	name    string
	call    rules.Call // by the server's clock
	usable  bool       // this version of the package may grant the name
	row     bool       // there is one in names
	special int        // as it was read
	last    int64      // tokens granted later are greater

	first *rules.Claim // the holder in the row of the name; the others are in the claims

	// ended are identities that released the name or left while one of their requests had no reply. Such
	// a request may arrive later and must not be granted, because no client would know of it.
	ended []*rules.Claim

	dirty   bool                  // the row has to be written
	changed map[*rules.Claim]bool // claims to write
	rung    map[*rules.Claim]bool // waiters to tell that they should ask again
	drops   []string              // claims to delete
	woken   []wake.Key
}

func (s *Store) newEntry(name string) *entry {
	e := &entry{s: s, name: name, changed: make(map[*rules.Claim]bool), rung: make(map[*rules.Claim]bool)}
	// A waiter asks more than twice per heartbeat, so that it does not lose its place if one request is late.
	e.call = rules.Call{Name: e, Unit: unit, Heartbeat: s.heartbeat, AskWithin: s.heartbeat * 2 / 5}
	return e
}

// ask answers a request.
func (e *entry) ask(req *store.Request) (store.Answer, error) {
	if e.hasEnded(req.ID) {
		return store.Answer{}, fmt.Errorf("%w: %q: request was already cancelled", store.ErrInvalid, e.name)
	}
	return e.call.Ask(req)
}

// values returns the row of the name, or an empty string if it did not change.
func (e *entry) values() string {
	special := 0
	if len(e.others()) > 0 || len(e.Queue) > 0 || len(e.ended) > 0 {
		special |= hasClaims
	}
	if e.first != nil && e.first.State != store.Held {
		special |= isClosed
	}
	if !e.row || !e.dirty && special == e.special {
		return ""
	}
	first := cmp.Or(e.first, new(rules.Claim))
	return fmt.Sprintf("(%s, %d, %d, %s)", literal(e.name), special, e.last, grantValues(first))
}

// others returns the holders in the claims.
func (e *entry) others() []*rules.Claim {
	return slices.DeleteFunc(slices.Clone(e.Holders), func(h *rules.Claim) bool { return h == e.first })
}

// noteEnd adds an identity to ended.
func (e *entry) noteEnd(id store.ID) {
	if e.row && !e.hasEnded(id) {
		c := &rules.Claim{ID: id, Seq: seqEnded, Since: e.call.Now, Until: e.call.Now + expiring.Late.Microseconds()}
		e.ended, e.changed[c] = append(e.ended, c), true
	}
}

func (e *entry) hasEnded(id store.ID) bool {
	return slices.ContainsFunc(e.ended, func(c *rules.Claim) bool { return c.ID == id })
}

// Put adds a holder, in the row of the name if that has none, or writes a changed one.
func (e *entry) Put(h *rules.Claim) {
	if e.first == nil && !slices.Contains(e.Holders, h) {
		e.first = h
	}
	e.Loaded.Put(h)
	e.changed[h] = true
	e.dirty = e.dirty || h == e.first
}

// Remove removes a holder.
func (e *entry) Remove(h *rules.Claim) {
	e.Loaded.Remove(h)
	if h == e.first {
		e.first, e.dirty = nil, true
	} else {
		e.drops = append(e.drops, claimKey(e.name, 0, h.ID))
	}
}

// Enqueue adds a waiter at the end of the queue, or keeps its place.
func (e *entry) Enqueue(w *rules.Claim) {
	e.Loaded.Enqueue(w)
	e.changed[w] = true
}

// Dequeue removes a waiter.
func (e *entry) Dequeue(w *rules.Claim) {
	e.Loaded.Dequeue(w)
	e.drops = append(e.drops, claimKey(e.name, w.Seq, w.ID))
}

// Wake tells a waiter to ask again: through its row, unless it is in this process.
func (e *entry) Wake(w *rules.Claim) {
	key := wake.Key{Name: e.name, ID: w.ID}
	e.woken = append(e.woken, key)
	if here, _ := e.s.waits.state(key); !here && !w.Woken {
		w.Woken, e.rung[w] = true, true
	}
}

// Reserve issues up to n consecutive tokens above floor, at least one.
func (e *entry) Reserve(n int, floor int64) (first int64, tokens int, err error) {
	first = max(e.call.Now, e.last+1, floor+1)
	if first > store.MaxToken {
		return 0, 0, store.NoTokens(max(e.last, floor))
	}
	tokens = int(min(int64(rules.Block(n)), store.MaxToken-first+1))
	e.last, e.dirty = first+int64(tokens)-1, true
	return first, tokens, nil
}

// Raise makes all later tokens of the name greater than floor.
func (e *entry) Raise(floor int64) error {
	if floor >= store.MaxToken {
		return store.NoTokens(floor)
	}
	if floor > e.last {
		e.last, e.dirty = floor, true
	}
	return nil
}

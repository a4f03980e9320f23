package mysqlstore

import (
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// A waiter asks again several times per heartbeat, to keep its place. Many waiters of one name that
// locked its row for that would delay each other and, worse, the renewals of the holder: on a busy
// machine with 50 waiters, rows were locked for longer than rowPatience. So a waiter that was not
// woken first decides about its request without locking anything. If nothing has to be written but
// its own claim, one statement does that. In all other cases the request is made in a transaction.
//
// Most of the time nothing has changed since the waiter was refused last. One statement finds that
// out and keeps its place: see keep.
//
// What it read may be old by then. That does no harm: whoever made a place free meanwhile has woken
// the first waiter, and that waiter then asks in a transaction. If the claim was removed or rung
// meanwhile, the statement does not change it. A waiter that is so late that another client is
// removing its claim may be told that it has its place, and finds out when its row is read next.

// stay makes requests of waiters that only keep their places. It returns the other calls, or all
// calls if one of the places was lost.
func (s *Store) stay(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	if len(calls) == 0 {
		return nil, nil
	}
	if kept, err := s.keep(ctx, c, calls); kept || err != nil {
		return nil, err
	}
	tx := &transaction{s: s, c: c, entries: make(map[string]*entry, len(calls))}
	names := make([]string, len(calls))
	for i, one := range calls {
		names[i] = one.name
	}
	if err := tx.load(ctx, fmt.Sprintf(s.sql.read, literals(names))); err != nil {
		return nil, err
	}
	if err := tx.loadClaims(ctx); err != nil {
		return nil, err
	}
	type staying struct {
		call   *call
		w      *rules.Claim
		answer store.Answer
	}
	var stays []staying
	var keys []string
	for _, one := range calls {
		if w, answer := tx.entries[one.name].staying(one.stay); w != nil {
			stays = append(stays, staying{one, w, answer})
			keys = append(keys, "("+claimKey(one.name, w.Seq, w.ID)+")")
		} else {
			rest = append(rest, one)
		}
	}
	if len(stays) == 0 {
		return rest, nil
	}
	n, err := c.exec(ctx, fmt.Sprintf(s.sql.stay, s.heartbeat.Microseconds()+1, strings.Join(keys, " OR ")))
	if isNumber(err, errDeadlock) || err == nil && n != int64(len(stays)) {
		return calls, nil
	}
	if err != nil {
		return nil, err
	}
	for _, one := range stays {
		s.waits.stay(keyOf(one.call.stay), one.w.Seq, tx.entries[one.call.name].refusal(one.call.stay, one.answer.Refusal))
		one.call.answered(one.answer)
	}
	return rest, nil
}

// staying returns the waiter of a request and its answer if the request only keeps its place, and
// nil otherwise.
func (e *entry) staying(req *store.Request) (*rules.Claim, store.Answer) {
	if e == nil || !e.usable {
		return nil, store.Answer{}
	}
	w := e.Waiter(req.ID)
	if w == nil || w.Woken || w.Owner != req.Owner || w.Meta != req.Meta {
		return nil, store.Answer{}
	}
	answer, err := e.ask(req) // sets Freed if it removes the waiter
	if err != nil || answer.Granted() || e.call.Freed {
		return nil, store.Answer{}
	}
	return w, answer
}

func keyOf(req *store.Request) wake.Key { return wake.Key{Name: req.Name, ID: req.ID} }

// A refusal is what a waiter was told last, and the rows that it was told from.
type refusal struct {
	store.Refusal
	req  store.Request
	read time.Time     // when that was
	left time.Duration // until the first grant expires; it may be renewed
	rows
}

// rows identify the rows of names that a refusal depends on, by their numbers and checksums.
type rows struct {
	held, claims       int // names with a grant in their row, and claims
	heldSum, claimsSum uint32
}

func (r *rows) add(other rows) {
	r.held, r.heldSum = r.held+other.held, r.heldSum^other.heldSum
	r.claims, r.claimsSum = r.claims+other.claims, r.claimsSum^other.claimsSum
}

func (e *entry) refusal(req *store.Request, r *store.Refusal) *refusal {
	known := &refusal{Refusal: *r, req: *req, read: time.Now(), left: math.MaxInt64}
	for _, h := range e.Holders {
		known.left = min(known.left, micros(h.Until-e.call.Now))
	}
	sum := func(parts ...string) uint32 { return crc32.ChecksumIEEE([]byte(strings.Join(parts, ""))) }
	if g := e.first; g != nil {
		modeAndState := string(dataOf(g)[:3])
		known.add(rows{held: 1, heldSum: sum(string(g.ID[:]), modeAndState, e.name)})
	}
	for _, c := range slices.Concat(e.others(), e.ended, e.Queue) {
		// A waiter that left and came back has another place.
		known.add(rows{claims: 1, claimsSum: sum(string(c.ID[:]), strconv.FormatInt(c.Seq, 10), e.name)})
	}
	return known
}

// asks reports whether a request is the one that was refused.
func (r *refusal) asks(req *store.Request) bool {
	return r.req.Queue == req.Queue && r.req.Owner == req.Owner && r.req.Meta == req.Meta &&
		r.req.Mode == req.Mode && r.req.Weight == req.Weight && r.req.Limit == req.Limit
}

// after returns what to tell the waiter if nothing has changed.
func (r *refusal) after(d, again time.Duration) *store.Refusal {
	same := r.Refusal
	same.Again = max(rules.MinAgain, min(again, r.left-d))
	same.Holders = slices.Clone(r.Holders)
	for i := range same.Holders {
		same.Holders[i].Age += d
		same.Holders[i].Left -= d
	}
	return &same
}

// keep keeps the places of waiters in one statement, either all or none, if their names have the
// grants and claims that they had when the waiters were refused, and nothing has expired. Renewals
// are not noticed: the refusals are read again when the grants would have expired without them.
func (s *Store) keep(ctx context.Context, c *conn, calls []*call) (kept bool, err error) {
	now := time.Now()
	keys, names, last, seqs := make([]string, len(calls)), make([]string, len(calls)), make([]*refusal, len(calls)), make([]int64, len(calls))
	var all rows
	for i, one := range calls {
		r, seq := s.waits.last(keyOf(one.stay))
		if r == nil || now.Sub(r.read) >= r.left || !r.asks(one.stay) {
			return false, nil
		}
		keys[i], names[i], last[i] = "("+claimKey(one.name, seq, one.stay.ID)+")", one.name, r
		seqs[i] = seq
		all.add(r.rows)
	}
	result, err := c.ExecContext(ctx, fmt.Sprintf(s.sql.keep, s.heartbeat.Microseconds()+1, strings.Join(keys, " OR "), literals(names),
		all.claims, all.claimsSum, all.held, all.heldSum))
	if isNumber(err, errDeadlock) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	if err != nil || n != int64(len(calls)) {
		return false, err
	}
	first, err := result.LastInsertId()
	if err != nil {
		return false, err
	}
	again := min(s.again(), micros(first))
	for i, one := range calls {
		s.waits.stay(keyOf(one.stay), seqs[i], last[i])
		one.answered(store.Answer{Refusal: last[i].after(now.Sub(last[i].read), again)})
	}
	return true, nil
}

package mysqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

// A waiter asks again several times per heartbeat, to keep its place. Many waiters of one name that
// locked its row for that would delay each other and, worse, the renewals of the holder: on a busy
// machine with 50 waiters, rows were locked for longer than rowPatience. So a waiter that was not
// woken first decides about its request without locking anything. If nothing has to be written but
// its own claim, one statement does that. In all other cases the request is made in a transaction.
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
	tx := &transaction{s: s, c: c, entries: make(map[string]*entry, len(calls))}
	names := make([]string, len(calls))
	for i, one := range calls {
		names[i] = one.name
	}
	if err := tx.load(ctx, s.sql.read, names); err != nil {
		return nil, err
	}
	if err := tx.loadClaims(ctx); err != nil {
		return nil, err
	}
	type staying struct {
		call   *call
		w      *waiter
		answer store.Answer
	}
	var stays []staying
	var keys []string
	for _, one := range calls {
		if w, answer := tx.entries[one.name].staying(one.stay); w != nil {
			stays = append(stays, staying{one, w, answer})
			keys = append(keys, "("+w.key()+")")
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
		s.waits.stay(one.w, one.answer.Refusal.Place)
		one.call.answered(one.answer)
	}
	return rest, nil
}

// staying returns the waiter of a request and its answer if the request only keeps its place, and
// nil otherwise.
func (e *entry) staying(req *store.Request) (*waiter, store.Answer) {
	if e == nil || !e.usable {
		return nil, store.Answer{}
	}
	w := e.queued(req.ID)
	if w == nil || w.rung || w.owner != req.Owner || w.meta != req.Meta {
		return nil, store.Answer{}
	}
	answer, err := e.ask(req) // sets freed if it removes the waiter
	if err != nil || answer.Granted() || e.freed {
		return nil, store.Answer{}
	}
	return w, answer
}

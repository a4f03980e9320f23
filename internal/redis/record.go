package redis

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

var errRecord = errors.New("the server's answer is not one of Holdfast's scripts: is another program using its keys?")

// plainStart is how the record of a lock with one exclusive holder begins.
func plainStart(id store.ID) string { return "P" + id.String() }

// plainRecord is such a record without its token, which the script adds: see take.lua.
func plainRecord(id store.ID, since time.Duration, owner, meta string) string {
	b := make([]byte, 0, 96)
	b = append(b, 'P')
	b, _ = id.AppendText(b)
	b = append(b, '\t')
	b = strconv.AppendInt(b, since.Milliseconds(), 10)
	b = append(b, "\t1\t"...) // tokens
	b = append(b, owner...)
	b = append(b, '\t')
	b = append(b, meta...)
	b = append(b, '\t')
	return string(b)
}

// parsePlain reads such a record.
func parsePlain(record string, now, left time.Duration) (store.Holder, error) {
	f := fields{rest: record}
	h := store.Holder{ID: f.id("P"), Mode: store.Exclusive, Weight: 1, Left: max(0, left)}
	h.Age = max(0, now-f.millis())
	f.next() // tokens
	h.Owner, h.Meta, h.Token = f.next(), f.next(), f.int()
	return h, f.err
}

// parseHolder reads a holder as state.lua packs it, behind its identity and its end.
func parseHolder(record string, now time.Duration) (h store.Holder, limit int, err error) {
	f := fields{rest: record}
	h.ID = f.id("")
	h.Left = max(0, f.millis()-now)
	h.Mode, h.Weight = store.Mode(f.int()), int(f.int())
	limit = int(f.int())
	h.State = store.State(f.int())
	h.Age = max(0, now-f.millis())
	h.Token = f.int()
	f.next() // tokens
	h.Owner, h.Meta = f.next(), f.next()
	return h, limit, f.err
}

// parseWaiter reads a waiter as acquire.lua packs it, behind its identity.
func parseWaiter(record string, now time.Duration) (w store.Waiter, limit int, err error) {
	f := fields{rest: record}
	w.ID = f.id("")
	w.Mode, w.Weight = store.Mode(f.int()), int(f.int())
	limit = int(f.int())
	w.Age = max(0, now-f.millis())
	f.next() // when it is taken for dead
	f.next() // channel
	f.next() // sent
	f.next() // unasked
	w.Owner, w.Meta = f.next(), f.next()
	return w, limit, f.err
}

// fields are what tabs separate. The first error stays.
type fields struct {
	rest string
	err  error
}

func (f *fields) next() string {
	field, rest, _ := strings.Cut(f.rest, "\t")
	f.rest = rest
	return field
}

func (f *fields) int() int64 {
	n, err := strconv.ParseInt(f.next(), 10, 64)
	if err != nil {
		f.err = errRecord
	}
	return n
}

func (f *fields) millis() time.Duration { return time.Duration(f.int()) * time.Millisecond }

func (f *fields) id(lead string) store.ID {
	text, ok := strings.CutPrefix(f.next(), lead)
	id, err := store.ParseID(text)
	if err != nil || !ok {
		f.err = errRecord
	}
	return id
}

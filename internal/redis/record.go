package redis

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

var errRecord = errors.New("the server's answer is not one of Holdfast's scripts: is another program using its keys?")

// plainStart is how the record of a lock with one exclusive holder and no waiter begins.
func plainStart(id store.ID) string { return "P" + id.String() }

// parsePlain reads such a record.
func parsePlain(record string, now, left time.Duration) (store.Holder, error) {
	h, _, err := parseHolder("1\t1\t0\t0\t"+millis(now+left)+"\t"+strings.TrimPrefix(record, "P"), now)
	return h, err
}

// parseHolder reads a holder: see name.lua.
func parseHolder(record string, now time.Duration) (h store.Holder, limit int, err error) {
	f := fields{rest: record}
	h.Mode, h.Weight = store.Mode(f.int()), int(f.int())
	limit = int(f.int())
	h.State = store.State(f.int())
	h.Left = max(0, f.millis()-now)
	h.ID = f.id()
	h.Owner, h.Meta = f.next(), f.next()
	h.Age = max(0, now-f.millis())
	f.next() // how many tokens
	h.Token = f.int()
	return h, limit, f.err
}

// parseWaiter reads a waiter behind its identity: see name.lua.
func parseWaiter(record string, now time.Duration) (w store.Waiter, limit int, err error) {
	f := fields{rest: record}
	w.ID = f.id()
	w.Mode, w.Weight = store.Mode(f.int()), int(f.int())
	limit = int(f.int())
	w.Age = max(0, now-f.millis())
	for range 5 { // beat, channel, sent, grant, tokens
		f.next()
	}
	w.Owner, w.Meta = f.next(), f.next()
	return w, limit, f.err
}

// fields are separated by tabs. The first error stays.
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

func (f *fields) id() store.ID {
	id, err := store.ParseID(f.next())
	if err != nil {
		f.err = errRecord
	}
	return id
}

package rediscore

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

var errRecord = errors.New("unexpected reply from a Holdfast script: is another program using its keys?")

// number, text and list convert a value of a reply. They return the zero value for other kinds.
func number(v any) int64 { n, _ := v.(int64); return n }
func text(v any) string  { s, _ := v.(string); return s }
func list(v any) []any   { l, _ := v.([]any); return l }

func micros(v any) time.Duration { return time.Duration(number(v)) * time.Microsecond }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func millis(d time.Duration) string { return decimal(d.Milliseconds()) }

// parseHolder parses the record of a holder: see name.lua.
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

// parseWaiter parses the identity and the record of a waiter: see name.lua.
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

// fields reads fields that are separated by tabs. It keeps the first error.
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

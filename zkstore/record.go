package zkstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

// A record is the data of a node: one line of fields, one with the owner, one with the meta.
//
// Token and since may be 0: then they follow from the node's last change, whose number and
// time nobody knows before it is made.
type record struct {
	granted bool
	state   store.State // of kept ones; Held is a grant whose store was closed
	id      store.ID
	mode    store.Mode // may differ from the one asked for, after a step down
	weight  int
	limit   int
	ttl     time.Duration // or for how long it is kept
	token   int64
	tokens  int
	base    int64 // what was added to the change's number
	since   int64 // granted, in ms of the server's clock
	owner   string
	meta    string
}

func (r *record) encode() []byte {
	b := make([]byte, 0, 96+len(r.owner)+len(r.meta))
	b = append(b, "1 "...)
	b = strconv.AppendBool(b, r.granted)
	b = append(b, ' ')
	b = append(b, r.id.String()...)
	for _, n := range [...]int64{
		int64(r.state), int64(r.mode), int64(r.weight), int64(r.limit), r.ttl.Milliseconds(),
		r.token, int64(r.tokens), r.base, r.since,
	} {
		b = append(b, ' ')
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, '\n')
	b = append(b, r.owner...) // neither has control characters: see store.CheckText
	b = append(b, '\n')
	return append(b, r.meta...)
}

// parseRecord reads what encode wrote, and fills in what follows from the change.
func parseRecord(data []byte, stat *zk.Stat) (*record, error) {
	lines := strings.SplitN(string(data), "\n", 3)
	fields := strings.Fields(lines[0])
	if len(lines) != 3 || len(fields) != 12 || fields[0] != "1" {
		return nil, fmt.Errorf("a node has data %.60q, which this version cannot read: another program may use the same root", data)
	}
	r := &record{owner: lines[1], meta: lines[2], granted: fields[1] == "true"}
	var err error
	if r.id, err = store.ParseID(fields[2]); err != nil {
		return nil, err
	}
	var n [9]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(fields[3+i], 10, 64); err != nil {
			return nil, fmt.Errorf("a node has data %.60q, which this version cannot read", data)
		}
	}
	r.state, r.mode, r.weight, r.limit = store.State(n[0]), store.Mode(n[1]), int(n[2]), int(n[3])
	r.ttl = time.Duration(n[4]) * time.Millisecond
	r.token, r.tokens, r.base, r.since = n[5], int(n[6]), n[7], n[8]
	r.settle(stat)
	return r, nil
}

// settle fills in what follows from the change that made a record.
func (r *record) settle(stat *zk.Stat) {
	if r.token == 0 {
		r.token, r.tokens = stat.Mzxid+r.base, 1
	}
	if r.since == 0 {
		r.since = stat.Mtime
	}
}

// holder describes a record of a holder whose node changed last at the time of mtime.
func (r *record) holder(mtime, now int64) store.Holder {
	return store.Holder{
		ID: r.id, Owner: r.owner, Meta: r.meta, Mode: r.mode, Weight: r.weight,
		Token: r.token, State: r.state,
		Age:  time.Duration(max(0, now-r.since)) * time.Millisecond,
		Left: max(0, time.Duration(mtime-now)*time.Millisecond+r.ttl),
	}
}

// last is the highest token of a record.
func (r *record) last() int64 { return r.token + int64(r.tokens) - 1 }

func (r *record) same(req *store.Request) error {
	return store.SameClaim(req, r.mode, r.weight, r.limit)
}

// recordOf is the record of a request.
func recordOf(req *store.Request) record {
	return record{
		id: req.ID, mode: req.Mode, weight: req.Weight, limit: req.Limit,
		ttl: req.TTL, owner: req.Owner, meta: req.Meta,
	}
}

package zkstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A record is the data of a node: one line of fields, one with the owner, one with the meta.
//
// Token and since may be 0 in the data: then they follow from the number and time of the change
// that wrote it, which nobody knows before.
type record struct {
	granted bool
	state   store.State // of kept ones; Held is a grant whose store was closed
	id      store.ID
	mode    store.Mode // differs from the one asked for after a step down
	weight  int
	limit   int
	ttl     time.Duration // or for how long it is kept
	token   int64         // first of the block
	tokens  int           // in the block
	floor   int64         // the token must be greater
	since   int64         // granted, in ms of the server's clock
	owner   string
	meta    string
}

// recordVersion is the first field. Version 1 computed tokens in another way.
const recordVersion = 2

func (r *record) encode() []byte { // owner and meta have no control characters: see store.CheckText
	return fmt.Appendf(nil, "%d %t %s %d %d %d %d %d %d %d %d %d\n%s\n%s", recordVersion, r.granted, r.id,
		r.state, uint8(r.mode), r.weight, r.limit, int64(r.ttl), r.token, r.tokens, r.floor, r.since, r.owner, r.meta)
}

func parseRecord(data []byte) (*record, error) {
	r, id, version := new(record), "", 0
	line, text, _ := strings.Cut(string(data), "\n")
	r.owner, r.meta, _ = strings.Cut(text, "\n")
	_, err := fmt.Sscan(line, &version, &r.granted, &id, &r.state, &r.mode, &r.weight, &r.limit, &r.ttl,
		&r.token, &r.tokens, &r.floor, &r.since)
	if err == nil {
		r.id, err = store.ParseID(id)
	}
	if err != nil || version != recordVersion {
		return nil, fmt.Errorf("zookeeper store: a node has data %.60q, which this version cannot read: another program may use the same root", data)
	}
	return r, nil
}

// last is the highest token of a record.
func (r *record) last() int64 { return r.token + int64(r.tokens) - 1 }

// recordOf is the record of a request.
func recordOf(req *store.Request) record {
	return record{
		id: req.ID, mode: req.Mode, weight: req.Weight, limit: req.Limit,
		ttl: req.TTL, tokens: req.Tokens, floor: req.Floor, owner: req.Owner, meta: req.Meta,
	}
}

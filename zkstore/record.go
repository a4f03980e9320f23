package zkstore

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

// A record is the data of a node: a line of fields, a line with the owner, and one with the meta. Name and
// Queue of the request are not stored. If token or since is 0 in the data, it follows from the zxid or the
// time of the change that wrote the record, which the writer cannot know in advance.
type record struct {
	store.Request // with the mode and the TTL of the last renewal, or with the time of a kept record
	granted       bool
	state         store.State // of a kept record; Held means a grant whose store was closed
	token         int64       // first of the block of Request.Tokens
	since         int64       // time of the grant, in ms of the servers' clock
}

// recordVersion is the first field. Programs of another version neither grant such a name nor change the node.
const recordVersion = 2

func (r *record) encode() []byte { // owner and meta have no control characters: see store.CheckText
	return fmt.Appendf(nil, "%d %t %s %d %d %d %d %d %d %d %d %d\n%s\n%s", recordVersion, r.granted, r.ID,
		r.state, uint8(r.Mode), r.Weight, r.Limit, int64(r.TTL), r.token, r.Tokens, r.Floor, r.since, r.Owner, r.Meta)
}

func parseRecord(path string, data []byte) (*record, error) {
	r, id, version := new(record), "", 0
	line, text, _ := strings.Cut(string(data), "\n")
	r.Owner, r.Meta, _ = strings.Cut(text, "\n")
	_, err := fmt.Sscan(line, &version, &r.granted, &id, &r.state, &r.Mode, &r.Weight, &r.Limit, &r.TTL,
		&r.token, &r.Tokens, &r.Floor, &r.since)
	if err == nil {
		r.ID, err = store.ParseID(id)
	}
	if err != nil || version != recordVersion {
		return nil, unknownFormat(path)
	}
	return r, nil
}

func unknownFormat(path string) error { return store.UnknownFormat("zookeeper store: node " + path) }

package etcdstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-lock/holdfast/store"
)

// defaultPrefix is the prefix of all keys unless the URL or an option sets another one.
const defaultPrefix = "holdfast"

// The letter after the name is the kind of the key. All holders are one range of keys, and so are all
// holders that exclude a reader.
const (
	kindCooling   = 'c'
	kindDone      = 'd'
	kindExclusive = 'e'
	kindPermits   = 'p'
	kindShared    = 's'
	kindWaiting   = 'w'

	holdersEnd = kindShared + 1
)

func kindOf(mode store.Mode) byte {
	switch mode {
	case store.Shared:
		return kindShared
	case store.Permits:
		return kindPermits
	}
	return kindExclusive
}

// The separator is between a name and the rest of its key. Names have no control characters, so no key of
// another name is between the keys of a name.
const (
	separator      = "\t"
	afterSeparator = "\n" // the next byte: greater than all keys of a name
)

// keys makes the keys of one store.
type keys struct {
	floor string // key of the offset that is added to tokens
	locks string // prefix of the keys of all names
}

func newKeys(prefix string) keys {
	return keys{floor: prefix + "/floor", locks: prefix + "/lock/"}
}

// name returns the prefix of all keys of a name.
func (k *keys) name(name string) string { return k.locks + name + separator }

// behind returns a key greater than all keys of a name, and less than those of names that start with it.
func (k *keys) behind(name string) string { return k.locks + name + afterSeparator }

// key returns the key of a grant, a kept record or a waiter with that lease. An exclusive grant always has
// the same key. The identity is not in the key: etcd keeps a trace of every deleted key until it is
// compacted, and a read of a name has to skip these traces. Leases are reused, so few keys have their names.
func (k *keys) key(name string, kind byte, lease int64) string {
	key := k.name(name) + string(rune(kind))
	if kind == kindExclusive {
		return key
	}
	return key + strconv.FormatInt(lease, 16)
}

func (k *keys) of(r *record) string { return k.key(r.name, r.kind, r.lease) }

// format is the version of the records. A later one must keep the keys of holders before those of kindShared, the
// only ones that a shared request checks, so that programs of this version neither grant nor change such a name.
const format = 1

// A record is the content of a key and its value. The value is the JSON of the exported fields.
type record struct {
	V      int // format
	ID     store.ID
	Mode   store.Mode
	Weight int
	Limit  int       `json:",omitempty"`
	Tokens int       `json:",omitempty"` // in the newest block
	Base   int64     `json:",omitempty"` // the offset that was added to the revision to get the tokens of that block
	Token  int64     `json:",omitempty"` // first token of that block if the key was written again since; otherwise 0
	Since  time.Time // when it was granted, closed or queued, by the clock of the client that wrote it
	Owner  string    `json:",omitempty"`
	Meta   string    `json:",omitempty"`

	name   string
	kind   byte
	lease  int64
	create int64
	mod    int64
	left   time.Duration // of the lease of a holder, for List
}

func newRecord(req *store.Request) record {
	return record{V: format, ID: req.ID, Mode: req.Mode, Weight: req.Weight, Limit: req.Limit, Owner: req.Owner, Meta: req.Meta, Since: time.Now()}
}

// A stored is a record whose mode is a number, not a text.
type stored struct {
	*fields
	Mode int
}

type fields record // without the methods of a record

func (r *record) value() []byte {
	value, _ := json.Marshal(stored{(*fields)(r), int(r.Mode)}) // no field can fail
	return value
}

// parseRecord reads a key and its value.
func (k *keys) parseRecord(kv *mvccpb.KeyValue) (r record, err error) {
	rest, ok := strings.CutPrefix(string(kv.Key), k.locks)
	i := strings.LastIndex(rest, separator)
	value := stored{fields: (*fields)(&r)}
	if !ok || i < 0 || len(rest) < i+2 || json.Unmarshal(kv.Value, &value) != nil || r.V != format || r.ID.IsZero() {
		return r, unknownFormat(kv.Key)
	}
	r.Mode = store.Mode(value.Mode)
	r.name, r.kind = rest[:i], rest[i+1]
	r.lease, r.create, r.mod = kv.Lease, kv.CreateRevision, kv.ModRevision
	return r, nil
}

// parseRecords reads the keys and values of a reply. If it cannot read some of them, it returns the
// others and an error.
func (k *keys) parseRecords(resp *pb.RangeResponse) (list []record, err error) {
	for _, kv := range resp.Kvs {
		if r, unknown := k.parseRecord(kv); unknown != nil {
			err = unknown
		} else {
			list = append(list, r)
		}
	}
	return list, err
}

func unknownFormat[K string | []byte](key K) error {
	return store.UnknownFormat(fmt.Sprintf("etcd store: key %q", key))
}

// firstToken returns the first token of the newest block.
func (r *record) firstToken() int64 {
	if r.Token != 0 {
		return r.Token
	}
	return tokenAt(r.mod, r.Base)
}

func (r *record) held() bool {
	return r.kind == kindExclusive || r.kind == kindPermits || r.kind == kindShared
}

func (r *record) state() store.State {
	switch r.kind {
	case kindCooling:
		return store.Cooling
	case kindDone:
		return store.Done
	}
	return store.Held
}

// age is wrong if the clocks of the clients differ, and nothing depends on it.
func (r *record) age(now time.Time) time.Duration { return max(0, now.Sub(r.Since)) }

func (r *record) holder(now time.Time, left time.Duration) store.Holder {
	return store.Holder{
		ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight,
		Token: r.firstToken(), State: r.state(), Age: r.age(now), Left: left,
	}
}

// same returns an ErrInvalid if there is a record and it is of another claim than the request.
func (r *record) same(req *store.Request) error {
	if r == nil {
		return nil
	}
	return store.SameClaim(req, r.Mode, r.Weight, r.Limit)
}

package etcdstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-lock/holdfast/store"
)

// defaultPrefix is the prefix of all keys unless the URL or an option sets another one.
const defaultPrefix = "holdfast"

// The letter after the name is the kind of the key. The letters are ordered so that all holders are
// one range of keys, and all holders that exclude a reader are one range as well.
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

// The separator is between a name and the rest of its key. Names have no control characters, so
// no key of another name is between the keys of a name.
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

// behind returns a key greater than all keys of a name, and less than the keys of names that
// start with that name.
func (k *keys) behind(name string) string { return k.locks + name + afterSeparator }

// key returns the key of a grant, a kept record or a waiter with that lease. There is at most one
// exclusive grant, always under the same key.
//
// The identity is in the value, not in the key. etcd keeps a trace of every deleted key until it is
// compacted, and a read of a name has to skip these traces. Leases are reused, so there are few
// keys named after leases.
func (k *keys) key(name string, kind byte, lease int64) string {
	key := k.name(name) + string(rune(kind))
	if kind == kindExclusive {
		return key
	}
	return key + strconv.FormatInt(lease, 16)
}

func (k *keys) of(r *record) string { return k.key(r.name, r.kind, r.lease) }

// parse is the reverse of key.
func (k *keys) parse(key string) (name string, kind byte, err error) {
	rest, ok := strings.CutPrefix(key, k.locks)
	i := strings.LastIndex(rest, separator)
	if !ok || i < 0 || len(rest) < i+2 {
		return "", 0, fmt.Errorf("%w: %q", errRecord, key)
	}
	return rest[:i], rest[i+1], nil
}

var errRecord = errors.New("another program, or a newer version of Holdfast, uses the same keys: give the URL another prefix")

// A record is the content of a key and its value.
type record struct {
	name   string
	id     store.ID
	kind   byte
	mode   store.Mode
	weight int
	limit  int
	tokens int           // in the newest block
	base   int64         // the offset that was added to the revision to get the tokens of that block
	token  int64         // first token of that block if the key was written again since; otherwise 0
	since  time.Duration // when it was granted, closed or queued, by the clock of the client that wrote it
	owner  string
	meta   string

	lease  int64
	create int64
	mod    int64
}

const recordVersion = "1"

// value returns the value to store. Owner and meta have no control characters.
func (r *record) value() []byte {
	b := make([]byte, 0, 64+len(r.owner)+len(r.meta))
	b = append(b, recordVersion...)
	for _, n := range []int64{int64(r.mode), int64(r.weight), int64(r.limit), int64(r.tokens), r.base, r.token, r.since.Microseconds()} {
		b = append(b, ' ')
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, ' ')
	b = append(b, r.id.String()...)
	b = append(b, '\n')
	b = append(b, r.owner...)
	b = append(b, '\n')
	return append(b, r.meta...)
}

// parseRecord reads a key and its value.
func (k *keys) parseRecord(kv *mvccpb.KeyValue) (r record, err error) {
	if r.name, r.kind, err = k.parse(string(kv.Key)); err != nil {
		return r, err
	}
	r.lease, r.create, r.mod = kv.Lease, kv.CreateRevision, kv.ModRevision
	head, text, ok := strings.Cut(string(kv.Value), "\n")
	if ok {
		r.owner, r.meta, ok = strings.Cut(text, "\n")
	}
	fields := strings.Split(head, " ")
	if !ok || len(fields) != 9 || fields[0] != recordVersion {
		return r, fmt.Errorf("%w: %q", errRecord, kv.Key)
	}
	var n [7]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(fields[i+1], 10, 64); err != nil {
			return r, fmt.Errorf("%w: %q", errRecord, kv.Key)
		}
	}
	r.mode, r.weight, r.limit, r.tokens = store.Mode(n[0]), int(n[1]), int(n[2]), int(n[3])
	r.base, r.token, r.since = n[4], n[5], time.Duration(n[6])*time.Microsecond
	if r.id, err = store.ParseID(fields[8]); err != nil {
		return r, fmt.Errorf("%w: %q", errRecord, kv.Key)
	}
	return r, nil
}

// firstToken returns the first token of the newest block.
func (r *record) firstToken() int64 {
	if r.token != 0 {
		return r.token
	}
	return tokenAt(r.mod, r.base)
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

// age returns how long ago the record was granted, closed or queued. It is wrong if the clocks of
// the clients differ, and nothing depends on it.
func (r *record) age(now time.Time) time.Duration { return max(0, wall(now)-r.since) }

func wall(now time.Time) time.Duration { return time.Duration(now.UnixMicro()) * time.Microsecond }

func (r *record) holder(now time.Time, left time.Duration) store.Holder {
	return store.Holder{
		ID: r.id, Owner: r.owner, Meta: r.meta, Mode: r.mode, Weight: r.weight,
		Token: r.firstToken(), State: r.state(), Age: r.age(now), Left: left,
	}
}

func (r *record) same(req *store.Request) error {
	return store.SameClaim(req, r.mode, r.weight, r.limit)
}

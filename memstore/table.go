package memstore

import (
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	shards     = 64 // far more than the cores that contend; a power of two
	shardBits  = 6
	minBuckets = 8

	// maxSpare is how many unused entries a shard keeps for the next names.
	maxSpare = 32

	// maxBlock bounds a block of tokens, so that no caller uses up what others need.
	maxBlock = 4096

	never = math.MaxInt64
)

// A table is the locks of one store, which several handles may share.
type table struct {
	base   time.Time
	seed   maphash.Seed
	shards [shards]shard
	last   atomic.Int64 // highest token issued
}

// A shard is the part of a table that is locked at once. It is a hash table of its own
// instead of a map because a name's hash is known from finding the shard, because it can
// be swept one bucket at a time, and because it shrinks.
type shard struct {
	mu      sync.Mutex
	buckets []*entry // chained by entry.next; their number is 0 or a power of two
	names   int
	due     int64  // nothing is over before then
	turn    int    // bucket to sweep next; 0 between two rounds
	ahead   int64  // what due will be after this round
	spare   *entry // chained likewise
	spares  int
	_       [64]byte
}

func newTable() *table {
	return &table{base: time.Now(), seed: maphash.MakeSeed()}
}

// shard returns where a name belongs, and its hash there.
func (t *table) shard(name string) (*shard, uint64) {
	hash := maphash.String(t.seed, name)
	return &t.shards[hash%shards], hash >> shardBits
}

// now is the time since the table was made. Durations from one base cost less to take and
// to store than times.
func (t *table) now() int64 { return int64(time.Since(t.base)) }

// after is the time d after now; never, if d is too long to be counted.
func after(now int64, d time.Duration) int64 {
	if end := now + int64(d); end >= now || d < 0 {
		return end
	}
	return never
}

// reserve issues n tokens in a row above floor, or fewer, but at least one.
func (t *table) reserve(n int, floor int64) (first int64, tokens int, err error) {
	n = min(max(n, 1), maxBlock)
	for {
		last := t.last.Load()
		base := max(last, floor)
		if base >= store.MaxToken {
			return 0, 0, tokensOver(base)
		}
		tokens = int(min(int64(n), store.MaxToken-base))
		if t.last.CompareAndSwap(last, base+int64(tokens)) {
			return base + 1, tokens, nil
		}
	}
}

// raise makes all later tokens greater than floor.
func (t *table) raise(floor int64) error {
	for {
		last := t.last.Load()
		if floor <= last {
			return nil
		}
		if floor >= store.MaxToken {
			return tokensOver(floor)
		}
		if t.last.CompareAndSwap(last, floor) {
			return nil
		}
	}
}

func tokensOver(floor int64) error {
	return fmt.Errorf("%w: token floor %d: no tokens are left above it, they end at 2^53-1; find out where so high a floor comes from", store.ErrInvalid, floor)
}

// bucket needs a shard that has any.
func (sh *shard) bucket(hash uint64) **entry {
	return &sh.buckets[hash&uint64(len(sh.buckets)-1)]
}

func (sh *shard) find(name string, hash uint64) *entry {
	if sh.names == 0 {
		return nil
	}
	for e := *sh.bucket(hash); e != nil; e = e.next {
		if e.hash == hash && e.name == name {
			return e
		}
	}
	return nil
}

func (sh *shard) add(name string, hash uint64) *entry {
	if sh.names == len(sh.buckets) {
		sh.resize(max(minBuckets, 2*len(sh.buckets)))
	}
	e := sh.spare
	if e == nil {
		e = new(entry)
	} else {
		sh.spare = e.next
		sh.spares--
	}
	b := sh.bucket(hash)
	e.name, e.hash, e.next, e.due = name, hash, *b, never
	*b = e
	sh.names++
	return e
}

// tidy ends each use of an entry: it removes one that nobody holds or waits for.
func (sh *shard) tidy(e *entry) {
	if !e.empty() {
		sh.due, sh.ahead = min(sh.due, e.due), min(sh.ahead, e.due)
		return
	}
	at := sh.bucket(e.hash)
	for *at != e {
		at = &(*at).next
	}
	*at = e.next
	sh.names--
	e.name, e.index, e.next = "", nil, nil // the rest is zero in an empty entry
	if sh.spares < maxSpare {
		e.next = sh.spare
		sh.spare = e
		sh.spares++
	}
}

func (sh *shard) resize(buckets int) {
	old := sh.buckets
	sh.buckets = make([]*entry, buckets)
	sh.turn = 0
	for _, e := range old {
		for e != nil {
			next := e.next
			b := sh.bucket(e.hash)
			e.next, *b = *b, e
			e = next
		}
	}
}

// sweep looks at one more bucket, once per request and while anything may be over. So what
// expired in names that nobody asks for again goes within about as many requests as there
// are names, and what stays until then is less than a multiple of what is alive.
func (sh *shard) sweep(now int64) {
	if n := len(sh.buckets); n > minBuckets && sh.names < n/8 {
		sh.resize(n / 2)
	}
	if sh.names == 0 || sh.turn == 0 && now < sh.due {
		return
	}
	if sh.turn == 0 {
		sh.ahead = never
	}
	for e := sh.buckets[sh.turn]; e != nil; {
		next := e.next
		e.settle(now)
		sh.tidy(e)
		e = next
	}
	if sh.turn++; sh.turn == len(sh.buckets) {
		sh.turn, sh.due = 0, sh.ahead
	}
}

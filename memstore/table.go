package memstore

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	shards     = 64 // far more than the number of cores that contend; a power of two
	shardBits  = 6
	minBuckets = 8

	// maxSpare is how many unused entries a shard keeps for reuse.
	maxSpare = 32

	// maxBlock bounds a block of tokens, so that no caller exhausts them.
	maxBlock = 4096

	never = math.MaxInt64
)

// A table holds the locks of one store. Several handles may share it.
type table struct {
	base   time.Time
	seed   maphash.Seed
	shards [shards]shard
	last   atomic.Int64 // highest token issued
}

// A shard is a part of a table with a mutex of its own. It is a hash table and not a map for
// three reasons: the hash of a name is known from the choice of the shard, a hash table can be
// swept one bucket at a time, and it can shrink.
type shard struct {
	mu      sync.Mutex
	buckets []*entry // chained by entry.next; their number is 0 or a power of two
	names   int
	due     int64  // no entry is due before this time
	turn    int    // bucket to sweep next; 0 between two sweeps
	ahead   int64  // value of due after this sweep
	spare   *entry // unused entries, chained by entry.next
	spares  int
	_       [64]byte
}

func newTable() *table {
	return &table{base: time.Now(), seed: maphash.MakeSeed()}
}

// shard returns the shard of a name, and the hash of the name in that shard.
func (t *table) shard(name string) (*shard, uint64) {
	hash := maphash.String(t.seed, name)
	return &t.shards[hash%shards], hash >> shardBits
}

// now returns the time since the table was created. A duration is cheaper to measure and to
// store than a time.Time.
func (t *table) now() int64 { return int64(time.Since(t.base)) }

// after returns the time d after now, or never if the sum overflows.
func after(now int64, d time.Duration) int64 {
	if end := now + int64(d); end >= now || d < 0 {
		return end
	}
	return never
}

// reserve issues up to n consecutive tokens above floor, at least one.
func (t *table) reserve(n int, floor int64) (first int64, tokens int, err error) {
	n = min(max(n, 1), maxBlock)
	for {
		last := t.last.Load()
		base := max(last, floor)
		if base >= store.MaxToken {
			return 0, 0, store.NoTokens(base)
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
			return store.NoTokens(floor)
		}
		if t.last.CompareAndSwap(last, floor) {
			return nil
		}
	}
}

// bucket returns the bucket of a hash. The shard must have buckets.
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

// tidy ends each use of an entry. It removes an entry without holders and waiters.
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

// sweep removes the expired holders and waiters of one more bucket. It runs once per request,
// while any entry may be due. Expired names that are never used again are thus removed within
// about as many requests as there are names, and their number stays below a multiple of the live
// names.
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

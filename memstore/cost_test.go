package memstore_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestHeldNameCostsLessThan350Bytes(t *testing.T) {
	const n = 20_000
	reqs := make([]store.Request, n)
	for i := range reqs {
		reqs[i] = request(fmt.Sprintf("held:%d", i))
		reqs[i].TTL = time.Hour
	}
	s := memstore.New()
	defer s.Close()
	before := heap()
	for i := range reqs {
		if a, err := s.Acquire(t.Context(), reqs[i]); err != nil || !a.Granted() {
			t.Fatal(a, err)
		}
	}
	per := float64(heap()-before) / n
	t.Logf("%.0f bytes per held name", per)
	if per > 350 {
		t.Errorf("%.0f bytes per held name, want at most 350", per)
	}
	for i := range reqs {
		if err := s.Release(t.Context(), reqs[i].Name, reqs[i].ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
	}
	if left := int64(heap() - before); left > 1<<20 {
		t.Errorf("%d bytes left after the release of all %d names", left, n)
	}
	runtime.KeepAlive(reqs)
}

func TestUncontendedPairHasAtMost4Allocations(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	req := request("order:42")
	if n := testing.AllocsPerRun(1000, func() {
		s.Acquire(t.Context(), req)
		if err := s.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
	}); n > 4 {
		t.Errorf("%v allocations", n)
	}
}

// A page is chosen without a copy of all names that follow it, which would also have to be sorted.
func TestAPageOfManyNamesNeedsLittleMemory(t *testing.T) {
	const names, limit = 50_000, 256 << 10
	s := memstore.New()
	defer s.Close()
	for i := range names {
		req := request(fmt.Sprintf("held:%d", i*7919%names)) // in no order
		req.TTL = time.Hour
		granted(t, s, req)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	page, err := s.List(t.Context(), store.Query{Prefix: "held:1", Cursor: "held:1", Limit: 10})
	runtime.ReadMemStats(&after)
	if err != nil || len(page.Locks) != 10 || page.Locks[0].Name != "held:10" || page.Next != "held:10006" {
		t.Errorf("page of %d names, next %q, %v", len(page.Locks), page.Next, err)
	}
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > limit {
		t.Errorf("a page takes %d bytes, want at most %d", bytes, limit)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

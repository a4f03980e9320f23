package memstore_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func pair(b testing.TB, s store.Store, req store.Request) {
	ctx := context.Background()
	a, err := s.Acquire(ctx, req)
	if err != nil || !a.Granted() {
		b.Fatal(a, err)
	}
	if err := s.Release(ctx, req.Name, req.ID, store.Keep{}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPair measures an uncontended Acquire and Release of one name.
func BenchmarkPair(b *testing.B) {
	s := memstore.New()
	defer s.Close()
	req := request("order:42")
	b.ReportAllocs()
	for b.Loop() {
		pair(b, s, req)
	}
}

// BenchmarkPairParallel measures pairs on several goroutines, each with a name of its own.
func BenchmarkPairParallel(b *testing.B) {
	s := memstore.New()
	defer s.Close()
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := request(fmt.Sprintf("order:%d", n.Add(1)))
		for pb.Next() {
			pair(b, s, req)
		}
	})
}

// BenchmarkPairBesideMany measures a pair while 100,000 other names are held, on a name that
// was not used recently.
func BenchmarkPairBesideMany(b *testing.B) {
	s := memstore.New()
	defer s.Close()
	hold(b, s, 100_000)
	reqs := make([]store.Request, 4096)
	for i := range reqs {
		reqs[i] = request(fmt.Sprintf("free:%d", i))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pair(b, s, reqs[i%len(reqs)])
		i++
	}
}

// BenchmarkRefusal measures a request for a held name, without Queue.
func BenchmarkRefusal(b *testing.B) {
	s := memstore.New()
	defer s.Close()
	hold(b, s, 1)
	req := request("held:0")
	b.ReportAllocs()
	for b.Loop() {
		if a, err := s.Acquire(b.Context(), req); err != nil || a.Granted() {
			b.Fatal(a, err)
		}
	}
}

// BenchmarkRenew extends 1,000 grants in one call.
func BenchmarkRenew(b *testing.B) {
	s := memstore.New()
	defer s.Close()
	var grants []store.Renewal
	for _, req := range hold(b, s, 1000) {
		grants = append(grants, store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Renew(b.Context(), grants); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandOff passes one name between two waiting goroutines. Each pass is a release, a
// wake-up and a grant.
func BenchmarkHandOff(b *testing.B) {
	s := memstore.New()
	defer s.Close()
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(1)
	b.RunParallel(func(pb *testing.PB) {
		req := request("order:42")
		req.Queue = true
		for pb.Next() {
			req.ID = store.NewID()
			for {
				a, err := s.Acquire(ctx, req)
				if err != nil {
					b.Error(err)
					return
				}
				if a.Granted() {
					break
				}
				if err := s.Wait(ctx, req.Name, req.ID); err != nil {
					b.Error(err)
					return
				}
			}
			if err := s.Release(ctx, req.Name, req.ID, store.Keep{}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// hold takes n names with a TTL longer than any test.
func hold(tb testing.TB, s store.Store, n int) []store.Request {
	tb.Helper()
	reqs := make([]store.Request, n)
	for i := range reqs {
		reqs[i] = request(fmt.Sprintf("held:%d", i))
		reqs[i].TTL = time.Hour
	}
	for _, req := range reqs {
		if a, err := s.Acquire(context.Background(), req); err != nil || !a.Granted() {
			tb.Fatal(a, err)
		}
	}
	return reqs
}

func TestHeldNameCostsLessThan350Bytes(t *testing.T) {
	const n = 100_000
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
	if left := int64(heap() - before); left > 2<<20 {
		t.Errorf("%d bytes left after the release of all %d names", left, n)
	}
	runtime.KeepAlive(reqs)
}

func TestUncontendedPairHasAtMost4Allocations(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	req := request("order:42")
	if n := testing.AllocsPerRun(1000, func() { pair(t, s, req) }); n > 4 {
		t.Errorf("%v allocations", n)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

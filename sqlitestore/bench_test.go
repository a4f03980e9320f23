package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// benchPragmas are the settings of the store. The raw statements to which it is compared use the
// same settings.
const benchPragmas = "?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=wal_autocheckpoint(4000)&_pragma=busy_timeout(5000)"

// A bare database is the raw limit: one row inserted and deleted by its primary key.
type bare struct{ put, take *sql.Stmt }

func openBare(b *testing.B) *bare {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "bare.db")+benchPragmas)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE bare (name TEXT PRIMARY KEY, id BLOB, until INTEGER) WITHOUT ROWID"); err != nil {
		b.Fatal(err)
	}
	prepare := func(query string) *sql.Stmt {
		stmt, err := db.Prepare(query)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { stmt.Close() })
		return stmt
	}
	return &bare{prepare("INSERT INTO bare VALUES (?, ?, ?)"), prepare("DELETE FROM bare WHERE name = ? AND id = ?")}
}

func (s *bare) pair(ctx context.Context, name string) error {
	id := store.NewID()
	if _, err := s.put.ExecContext(ctx, name, id[:], time.Now().UnixNano()); err != nil {
		return err
	}
	_, err := s.take.ExecContext(ctx, name, id[:])
	return err
}

func pair(ctx context.Context, s *sqlitestore.Store, name string) error {
	req := request(name)
	answer, err := s.Acquire(ctx, req)
	if err != nil {
		return err
	}
	if !answer.Granted() {
		return fmt.Errorf("%q is refused", name)
	}
	return s.Release(ctx, name, req.ID, store.Keep{})
}

// BenchmarkPair compares Acquire and Release with the two raw statements. They alternate in turns
// of a hundred, so that a busy machine affects both. It reports the medians.
func BenchmarkPair(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			ctx := context.Background()
			s := open(b, newPath(b))
			raw := openBare(b)
			turn := func(pair func(name string) error) time.Duration {
				var left atomic.Int64
				left.Store(100)
				start := time.Now()
				var wg sync.WaitGroup
				for g := range goroutines {
					wg.Go(func() {
						name := fmt.Sprintf("order:%d", g)
						for left.Add(-1) >= 0 {
							if err := pair(name); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(start) / 100
			}
			var ours, theirs []time.Duration
			for b.Loop() {
				ours = append(ours, turn(func(name string) error { return pair(ctx, s, name) }))
				theirs = append(theirs, turn(func(name string) error { return raw.pair(ctx, name) }))
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			o, t := ours[len(ours)/2], theirs[len(theirs)/2]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(o.Nanoseconds()), "pair-ns")
			b.ReportMetric(float64(t.Nanoseconds()), "bare-ns")
			b.ReportMetric(float64(t)/float64(o), "of-bare")
		})
	}
}

// BenchmarkRenew renews grants in one call.
func BenchmarkRenew(b *testing.B) {
	ctx := context.Background()
	s := open(b, newPath(b))
	const n = 256
	grants := make([]store.Renewal, n)
	for i := range grants {
		req := request(fmt.Sprintf("order:%d", i))
		if _, err := s.Acquire(ctx, req); err != nil {
			b.Fatal(err)
		}
		grants[i] = store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode}
	}
	for b.Loop() {
		if _, err := s.Renew(ctx, grants); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/grant")
}

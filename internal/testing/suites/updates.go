package suites

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
)

// Updates lets clients add to rows of a database under locks, for a time. They read and write in separate
// statements, and their tokens are checked. No update may be lost. It returns how many were made.
func Updates(t *testing.T, db *sql.DB, fences sqlfence.Dialect, clients []*holdfast.Client, names int, d time.Duration) int64 {
	t.Helper()
	exec := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	exec("CREATE TABLE counted (id INT PRIMARY KEY, n INT NOT NULL)")
	for i := range names {
		exec(fmt.Sprintf("INSERT INTO counted VALUES (%d, 0)", i))
	}
	must(t, fences.CreateTable(t.Context(), db))
	var sure, unknown atomic.Int64
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for _, c := range clients {
		for range 2 {
			wg.Go(func() {
				for time.Now().Before(end) {
					i := rand.IntN(names)
					err := c.Do(t.Context(), rowName(i), func(ctx context.Context) error {
						committing, err := addOne(ctx, db, fences, i)
						switch {
						case err == nil:
							sure.Add(1)
						case committing:
							unknown.Add(1)
						}
						return err
					})
					if err != nil && !errors.Is(err, holdfast.ErrLost) { // a busy machine may be too slow to renew in time
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	var sum int64
	must(t, db.QueryRow("SELECT SUM(n) FROM counted").Scan(&sum))
	if sum < sure.Load() || sum > sure.Load()+unknown.Load() {
		t.Errorf("%d updates, and perhaps %d more, but the rows count %d", sure.Load(), unknown.Load(), sum)
	}
	return sum
}

func rowName(i int) string { return fmt.Sprint("row:", i) }

// addOne adds to a row in two steps, which needs the lock. An error while committing has an unknown outcome.
func addOne(ctx context.Context, db *sql.DB, fences sqlfence.Dialect, i int) (committing bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	if err := fences.Check(ctx, tx, rowName(i), holdfast.TokenFrom(ctx)); err != nil {
		return false, err
	}
	var n int
	if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT n FROM counted WHERE id = %d", i)).Scan(&n); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE counted SET n = %d WHERE id = %d", n+1, i)); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

// Contend lets workers, which share clients, take one name after the other for a time. It checks that a name
// has one holder at a time and that its tokens grow. After each turn, it calls after with the outcome of Unlock.
func Contend(t *testing.T, clients []*holdfast.Client, workers, names int, d time.Duration, after func(turn int, unlocked error), opts ...holdfast.CallOption) int64 {
	held, tokens := make([]atomic.Bool, names), make([]atomic.Int64, names)
	end := time.Now().Add(d)
	var turns atomic.Int64
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for turn := i; time.Now().Before(end); turn++ {
				n := turn % names
				lease, err := clients[i%len(clients)].Lock(t.Context(), fmt.Sprint("name", n), opts...)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if !held[n].CompareAndSwap(false, true) {
					t.Errorf("name%d has two holders", n)
				}
				if before := tokens[n].Swap(lease.Token()); before >= lease.Token() {
					t.Errorf("name%d: token %d after %d", n, lease.Token(), before)
				}
				held[n].Store(false)
				after(turn, lease.Unlock(t.Context()))
				turns.Add(1)
			}
		})
	}
	wg.Wait()
	t.Logf("%d locks", turns.Load())
	return turns.Load()
}

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

const (
	CrowdName = "crowd" // the name that all clients use

	stay     = 10 * time.Second // how long the crowd waits before the first hand-off: more than a heartbeat
	handOffs = 20
	pause    = 100 * time.Millisecond // between two renewals
	patience = 5 * time.Minute
)

// A CrowdResult has the longest times that were measured.
type CrowdResult struct {
	Join    time.Duration // until all waiters were queued, which joined at once
	Renewal time.Duration // of a holder, meanwhile and afterwards
	HandOff time.Duration // from the call of Unlock until the next waiter has the lock
}

func (r CrowdResult) String() string {
	return fmt.Sprintf("all queued after %v; longest renewal %v, longest hand-off %v", r.Join, r.Renewal, r.HandOff)
}

// Crowd opens a client for each reader and each waiter. The readers hold a name, or one client exclusively if
// there are none, and all waiters wait for it at once. Queued returns how many requests are queued.
func Crowd(t testing.TB, url string, readers, waiters int, queued func() (int, error)) (r CrowdResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var running sync.WaitGroup
	clients := make([]*holdfast.Client, max(1, readers)+waiters)
	defer func() {
		cancel()
		running.Wait()
		inParallel(t, len(clients), func(i int) error {
			if clients[i] == nil {
				return nil
			}
			return clients[i].Close()
		})
	}()
	inParallel(t, len(clients), func(i int) (err error) {
		clients[i], err = holdfast.Open(ctx, url)
		return err
	})
	held := make([]*holdfast.Lease, max(1, readers))
	inParallel(t, len(held), func(i int) (err error) {
		lock := clients[i].RLock
		if readers == 0 {
			lock = clients[i].Lock
		}
		held[i], err = lock(ctx, CrowdName)
		return err
	})
	renew := func(l *holdfast.Lease) {
		begin := time.Now()
		if err := l.Renew(ctx); err != nil {
			t.Errorf("a renewal failed after %v: %v", time.Since(begin), err)
		}
		r.Renewal = max(r.Renewal, time.Since(begin))
	}

	type grant struct {
		lease *holdfast.Lease
		at    time.Time
	}
	granted := make(chan grant, waiters)
	begin := time.Now()
	for _, c := range clients[len(held):] {
		running.Go(func() {
			lease, err := c.Lock(ctx, CrowdName, holdfast.Retry(holdfast.Backoff(100*time.Millisecond, 3*time.Second)))
			if err == nil {
				granted <- grant{lease, time.Now()}
			} else if ctx.Err() == nil {
				t.Errorf("a waiter: %v", err)
			}
		})
	}
	for r.Join == 0 || time.Since(begin) < r.Join+stay {
		renew(held[0])
		time.Sleep(pause)
		if n, err := queued(); err != nil || ctx.Err() != nil {
			t.Fatalf("%d of %d are queued: %v", n, waiters, err)
		} else if r.Join == 0 && n >= waiters {
			r.Join = time.Since(begin)
		}
	}
	inParallel(t, len(held)-1, func(i int) error { return held[i+1].Unlock(ctx) })
	lease := held[0]
	for range min(handOffs, waiters) {
		renew(lease)
		begin := time.Now()
		must(t, lease.Unlock(ctx))
		select {
		case next := <-granted:
			r.HandOff = max(r.HandOff, next.at.Sub(begin))
			lease = next.lease
		case <-ctx.Done():
			t.Fatal("the next waiter is not granted")
		}
	}
	return r
}

// inParallel calls f(0) … f(n-1), a few at a time.
func inParallel(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	turns := make(chan struct{}, 32)
	var wg sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			if err := f(i); err != nil {
				t.Error(err)
			}
			<-turns
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

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

package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

var clientsTime = flag.Duration("clients", 3*time.Second, "how long 64 clients lock 200 names")

// Each client adds to a row under the lock. It reads and writes in separate statements, and its
// token is checked. The clients make all kinds of calls: they wait, try, lock several names at
// once, and cancel.
func TestSixtyFourClientsLoseNoUpdateAndMeetNoDeadlock(t *testing.T) {
	const clients, names = 64, 200
	app := connectTo(t, func(c *mysql.Config) { c.InterpolateParams = true })
	app.SetMaxOpenConns(20)
	app.SetMaxIdleConns(20)
	mustExec(t, app, "CREATE TABLE counter (id INT PRIMARY KEY, n INT NOT NULL)")
	for i := range names {
		mustExec(t, app, fmt.Sprintf("INSERT INTO counter VALUES (%d, 0)", i))
	}
	database := databaseOf(t, app)
	fences := sqlfence.MySQL(database)
	if err := fences.CreateTable(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	before := deadlockCount(t, app)
	var done [names]updates
	ctx, cancel := context.WithTimeout(t.Context(), *clientsTime)
	defer cancel()
	var wg sync.WaitGroup
	var pairs atomic.Int64
	for range clients {
		c, err := holdfast.New(newIn(t, poolOf(t, database, nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		wg.Go(func() {
			for ctx.Err() == nil {
				err := oneUpdate(ctx, app, fences, c, rand.IntN(names), rand.IntN(names), &done)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				pairs.Add(1)
			}
		})
	}
	wg.Wait()
	for i := range names {
		var n int64
		if err := app.QueryRow(fmt.Sprintf("SELECT n FROM counter WHERE id = %d", i)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		sure, unknown := done[i].sure.Load(), done[i].unknown.Load()
		if n < sure || n > sure+unknown {
			t.Errorf("row %d was increased %d times, and perhaps %d times more, and is %d", i, sure, unknown, n)
		}
	}
	var rows, claims int
	if err := app.QueryRow("SELECT (SELECT COUNT(*) FROM holdfast_names), (SELECT COUNT(*) FROM holdfast_claims)").Scan(&rows, &claims); err != nil {
		t.Fatal(err)
	}
	if rows > names || claims > clients {
		t.Errorf("%d rows of %d names, %d claims of %d clients", rows, names, claims, clients)
	}
	t.Logf("%d locks in %v, %d deadlocks in the server", pairs.Load(), *clientsTime, deadlockCount(t, app)-before)
}

// updates counts the updates of one row.
type updates struct{ sure, unknown atomic.Int64 }

func oneUpdate(ctx context.Context, app *sql.DB, fences sqlfence.Dialect, c *holdfast.Client, i, j int, done *[200]updates) error {
	name := func(i int) string { return fmt.Sprint("row:", i) }
	switch rand.IntN(10) {
	case 0:
		if i == j {
			return nil
		}
		all, err := c.LockAll(ctx, []string{name(i), name(j)})
		if err != nil {
			return err
		}
		return all.Unlock(context.WithoutCancel(ctx))
	case 1: // gives up soon
		short, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(5))*time.Millisecond)
		defer cancel()
		if lease, err := c.Lock(short, name(i)); err == nil {
			return lease.Unlock(context.WithoutCancel(ctx))
		}
		return nil
	case 2:
		if lease, err := c.RLock(ctx, name(i)); err != nil {
			return err
		} else {
			return lease.Unlock(context.WithoutCancel(ctx))
		}
	}
	return c.Do(ctx, name(i), func(ctx context.Context) error {
		tx, err := app.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fences.Check(ctx, tx, name(i), holdfast.TokenFrom(ctx)); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT n FROM counter WHERE id = %d", i)).Scan(&n); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE counter SET n = %d WHERE id = %d", n+1, i)); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			done[i].unknown.Add(1) // the end of the test may have cancelled the commit
			return fmt.Errorf("commit: %w", err)
		}
		done[i].sure.Add(1)
		return nil
	})
}

func deadlockCount(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	var name string
	if err := db.QueryRow("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Low timeouts that an administrator has set for all sessions do not affect a busy store.
func TestLowTimeoutsOfTheServerDoNotReachCallers(t *testing.T) {
	db := connectTo(t, nil)
	newIn(t, db)
	const names = 2
	var held [names]atomic.Bool
	var done atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	for range 8 {
		c, err := holdfast.New(newIn(t, poolOf(t, databaseOf(t, db), func(c *mysql.Config) {
			c.Params = map[string]string{"innodb_lock_wait_timeout": "0", "lock_wait_timeout": "0", "idle_transaction_timeout": "1", "wait_timeout": "1"}
		})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		for i := range 2 {
			wg.Go(func() {
				for time.Now().Before(end) {
					lease, err := c.TryLock(t.Context(), fmt.Sprint("name", i))
					if errors.Is(err, holdfast.ErrHeld) {
						continue
					}
					if err != nil {
						t.Errorf("TryLock: %v", err)
						return
					}
					if !held[i].CompareAndSwap(false, true) {
						t.Errorf("name%d has two holders", i)
					}
					held[i].Store(false)
					if err := lease.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock: %v", err)
						return
					}
					done.Add(1)
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d locks", done.Load())
}

// The longest names and texts of a full batch fit into the packets that an administrator allows.
func TestAFullBatchFitsIntoAPacketOfTheServer(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Config: []string{"--max-allowed-packet=1M"}})
	s := openStore(t, server.URL(server.Addr()))
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			r := request(fmt.Sprint(i, strings.Repeat("n", store.MaxName-3)))
			r.Mode = []store.Mode{store.Exclusive, store.Shared}[i%2]
			r.Owner, r.Meta = strings.Repeat("o", store.MaxText), strings.Repeat("m", store.MaxText)
			if _, err := s.Acquire(limited(t), r); err != nil {
				t.Error(err)
			}
			r.ID, r.Queue = store.NewID(), true // behind it, or beside it
			if _, err := s.Acquire(limited(t), r); err != nil {
				t.Error(err)
			}
			if err := s.Leave(limited(t), r.Name, r.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

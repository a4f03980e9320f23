package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// lockRow locks the row of a name, as a client that hangs within a transaction.
func lockRow(t testing.TB, db *sql.DB, name string) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(limited(t), nil)
	if err == nil {
		t.Cleanup(func() { tx.Rollback() })
		_, err = tx.Exec("SELECT * FROM holdfast_names WHERE name = " + literal(name) + " FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// A row that another session has locked costs no lease on another name, even if the client waits
// less long for a renewal than the store for the row.
func TestALockedRowCostsNoLeaseOnAnotherName(t *testing.T) {
	for what, shared := range map[string]bool{"one mode": false, "two modes": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := connectTo(t, nil)
			const ttl = 4 * time.Second // a renewal may take a sixth of it
			c, err := holdfast.New(newIn(t, db), holdfast.WithTTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			lock := func(name string, how func(context.Context, string, ...holdfast.CallOption) (*holdfast.Lease, error)) *holdfast.Lease {
				lease, err := how(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				return lease
			}
			others := []*holdfast.Lease{lock("other0", c.Lock), lock("other1", c.Lock)}
			if shared {
				others = append(others, lock("other2", c.RLock))
			}
			stuck := lock("stuck", c.Lock)
			lockRow(t, db, "stuck")
			<-stuck.Done()
			time.Sleep(ttl / 2)
			for _, lease := range others {
				if err := lease.Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A renewal waits for a locked row once. Later ones try again without waiting, until the row is not
// locked any more.
func TestARenewalWaitsOnceForALockedRow(t *testing.T) {
	db := connectTo(t, nil)
	s := newIn(t, db)
	var renewals []store.Renewal
	for i := range 3 {
		r := request(fmt.Sprint("n", i))
		granted(t, s, r)
		renewals = append(renewals, store.Renewal{Name: r.Name, ID: r.ID, TTL: r.TTL, Mode: r.Mode})
	}
	tx := lockRow(t, db, "n1")
	renew := func(locked bool, waits bool) {
		t.Helper()
		begin := time.Now()
		out, err := s.Renew(limited(t), renewals)
		took := time.Since(begin)
		if err != nil || (took >= rowPatience*time.Second) != waits {
			t.Fatalf("Renew: %v after %v", err, took)
		}
		for i := range out {
			if unknown := locked && i == 1; (out[i].Status == store.Unknown) != unknown || (out[i].Err != nil) != unknown {
				t.Errorf("%s: %+v", renewals[i].Name, out[i])
			}
		}
	}
	renew(true, true)
	renew(true, false)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	renew(false, false)
	if len(s.stuck.until) != 0 {
		t.Errorf("rows that count as locked: %v", s.stuck.until)
	}
}

// Claims of one name that another session has locked do not hold up another name, even if most claims
// are removed at once, so that the server would rather read the whole table.
func TestLockedClaimsHoldUpTheirNameOnly(t *testing.T) {
	t.Parallel()
	db := connectTo(t, nil)
	holder, s := newIn(t, db), newIn(t, db)
	var holding, last store.Request
	for _, name := range []string{"stuck", "other"} {
		holding = request(name)
		granted(t, holder, holding)
		for range 12 {
			last = request(name)
			last.Queue = true
			refused(t, s, last)
		}
	}
	lock := lockRow(t, db, "stuck")
	if _, err := lock.Exec("UPDATE holdfast_claims SET rung = 1 WHERE name = 'stuck'"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "UPDATE holdfast_claims SET until = since + 1 WHERE name = 'other' AND seq < 12")
	release(t, holder, holding)
	granted(t, s, last)
}

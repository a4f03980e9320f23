package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// lockRow locks the rows of names in another session, as in psql, until unlock is called.
func lockRow(t *testing.T, url string, names ...string) (unlock func()) {
	t.Helper()
	return inSession(t, url, fmt.Sprintf("SELECT FROM holdfast.names WHERE name IN ('%s') FOR UPDATE", strings.Join(names, "', '")))
}

// inSession runs a statement in a transaction that stays open until end is called.
func inSession(t *testing.T, url, statement string) (end func()) {
	t.Helper()
	conn := connect(t, url)
	exec(t, conn, "BEGIN; "+statement)
	return func() { conn.Close(context.Background()) }
}

func TestLockedRowsHoldUpTheirNamesOnly(t *testing.T) {
	lockAt := func(t *testing.T, url string) func(names ...string) func() {
		return func(names ...string) func() { return lockRow(t, url, names...) }
	}
	for what, lock := range map[string]string{
		"row locked": "SELECT FROM holdfast.names WHERE name LIKE 'stuck%' FOR UPDATE",
		"row added and not committed": "DELETE FROM holdfast.names; COMMIT; BEGIN; " +
			"INSERT INTO holdfast.names (name, highest, used) SELECT 'stuck' || n, 0, 0 FROM generate_series(0, 2) n",
		"advisory lock of a stranger": "SELECT pg_advisory_lock(1215260740, hashtext('stuck' || n)) " +
			"FROM generate_series(0, 2) n",
	} {
		t.Run(what, func(t *testing.T) {
			p := server(t)
			const least = 150 // if each of them waits for a stuck name, there are about 60
			suites.StuckNames(t, openStore(t, p.URL()), least, func(...string) (unlock func()) {
				return inSession(t, p.URL(), lock)
			})
		})
	}
	t.Run("leases", func(t *testing.T) {
		p := server(t)
		s := openStore(t, p.URL())
		// A renewal has a sixth of the TTL. If it waited for a locked row, it would take too long, as with 20 ms
		// and the shortest TTL.
		p.Must("ALTER FUNCTION holdfast.locked SET lock_timeout = 1000")
		suites.StuckLease(t, s, 4*time.Second, lockAt(t, p.URL()))
	})
	t.Run("renewals", func(t *testing.T) {
		p := server(t)
		suites.StuckRenewals(t, openStore(t, p.URL()), lockAt(t, p.URL()))
	})
}

// A statement that waits for a stuck name has locked the rows of other names, and other clients use
// these too. Their calls must not be taken for calls of stuck names.
func TestCallsOnBusyNamesDoNotFailBecauseOfStuckNames(t *testing.T) {
	const stuck = 8
	p := server(t)
	var clients []*holdfast.Client
	for range 3 {
		clients = append(clients, client(t, openStore(t, p.URL())))
	}
	s := openStore(t, p.URL())
	for i := range stuck { // so that there are rows
		pair(t, s, fmt.Sprint("stuck", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var calls, failed atomic.Int64
	for _, c := range clients {
		for i := range 10 {
			wg.Go(func() {
				for ctx.Err() == nil {
					lease, err := c.TryLock(t.Context(), fmt.Sprint("busy", i%3))
					calls.Add(1)
					if err == nil {
						err = lease.Unlock(t.Context())
					}
					if err != nil && !errors.Is(err, holdfast.ErrHeld) && failed.Add(1) == 1 {
						t.Error(err)
					}
				}
			})
		}
	}
	var stuckCalls sync.WaitGroup
	for i := range stuck {
		name := fmt.Sprint("stuck", i)
		lockRow(t, p.URL(), name)
		stuckCalls.Go(func() {
			if _, err := clients[i%len(clients)].TryLock(t.Context(), name); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("try lock %q: %v", name, err)
			}
		})
		time.Sleep(200 * time.Millisecond)
	}
	stuckCalls.Wait()
	cancel()
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
}

// Calls on names that may be stuck share statements, which do not wait for a row. A call whose row is
// free a moment later is repeated.
func TestACallOnANameThatIsNoLongerStuckDoesNotFail(t *testing.T) {
	p := server(t)
	s := openStore(t, p.URL())
	names := []string{"freed", "stuck0", "stuck1"}
	for _, name := range names { // so that there are rows
		pair(t, s, name)
	}
	lockRow(t, p.URL(), names[1:]...)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				s.Acquire(ctx, request(names[1+i%2]))
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	for range 3 {
		unlock := lockRow(t, p.URL(), "freed")
		if _, err := s.Acquire(t.Context(), request("freed")); err == nil {
			t.Fatal("granted while another session has locked the row")
		}
		time.AfterFunc(500*time.Millisecond, unlock)
		pair(t, s, "freed")
	}
}

// On a busy machine, another client may have locked a row for that long.
func TestACallWaitsForARowThatIsLockedForAMoment(t *testing.T) {
	p := server(t)
	s := openStore(t, p.URL())
	pair(t, s, "name") // so that there is a row
	unlock := lockRow(t, p.URL(), "name")
	time.AfterFunc(1200*time.Millisecond, unlock)
	pair(t, s, "name")
}

// An administrator may have deleted a shared holder by hand and not committed. The row of the name is
// not locked then, and the other holders of that name are renewed too.
func TestRenewalsOfOthersAreMadeWithoutAStuckHolder(t *testing.T) {
	p := server(t)
	s := openStore(t, p.URL())
	var renewals []store.Renewal
	for _, name := range []string{"a", "shared", "shared", "shared", "z"} {
		r := request(name)
		if name == "shared" {
			r.Mode = store.Shared
		}
		granted(t, s, r)
		renewals = append(renewals, renewal(r))
	}
	inSession(t, p.URL(), fmt.Sprintf("DELETE FROM holdfast.holders WHERE id = '%s'", renewals[2].ID))
	for range 2 {
		out, err := s.Renew(t.Context(), renewals)
		must(t, err)
		for i, o := range out {
			if stuck := i == 2; stuck != (o.Err != nil) || stuck == (o.Status == store.Extended) {
				t.Errorf("renewal %d: %+v", i, o)
			}
		}
	}
}

// lockExpiredHolder locks the row of an expired holder in another session. All calls on its name wait for
// that row, because they remove it.
func lockExpiredHolder(t *testing.T, p *servers.Postgres, s store.Store, name string) {
	t.Helper()
	r := request(name)
	r.Mode = store.Shared
	granted(t, s, r)
	p.Must("UPDATE holdfast.holders SET until = 0")
	inSession(t, p.URL(), "SELECT FROM holdfast.holders FOR UPDATE")
}

// Many calls on such a name share a statement with calls on other names.
func TestAStuckHolderDoesNotFailCallsOnOtherNames(t *testing.T) {
	p := server(t)
	s := openStore(t, p.URL())
	lockExpiredHolder(t, p, s, "stuck")
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			if i%2 == 0 {
				if _, err := s.Acquire(t.Context(), request("stuck")); !strings.Contains(fmt.Sprint(err), "another session has locked the row") {
					t.Errorf("a call on the stuck name: %v", err)
				}
			} else if _, err := s.Acquire(t.Context(), request(fmt.Sprint("other", i))); err != nil {
				t.Errorf("a call on another name: %v", err)
			}
		})
	}
	wg.Wait()
}

// A sweep removes expired holders too. It must not wait for that row in a statement of calls on other names,
// and it goes on to other names.
func TestAStuckHolderDoesNotEndASweep(t *testing.T) {
	p := server(t)
	s := openStore(t, p.URL())
	lockExpiredHolder(t, p, s, "stuck")
	p.Must("UPDATE holdfast.names SET used = 0")
	p.Must("INSERT INTO holdfast.names (name, highest, used) VALUES ('unused', 0, 0)")
	granted(t, openStore(t, p.URL()), request("other")) // the first call of a store sweeps
	if left := p.Must("SELECT name FROM holdfast.names WHERE name = 'unused'"); len(left) > 0 {
		t.Error("the sweep failed")
	}
}

package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// A crowd is a name that is held through one store, with two waiters, each of another store.
type crowd struct {
	db                           *sql.DB
	first, second                *Store
	holding, waiting, waitingToo store.Request
	holder                       *Store
}

func newCrowd(t testing.TB, name string) *crowd {
	t.Helper()
	db := connectTo(t, nil)
	c := &crowd{db: db, holder: newIn(t, db), first: newIn(t, db), second: newIn(t, db)}
	c.holding, c.waiting, c.waitingToo = request(name), queued(name), queued(name)
	granted(t, c.holder, c.holding)
	refused(t, c.first, c.waiting)
	refused(t, c.second, c.waitingToo)
	return c
}

// claim returns the end of a waiter's place, in µs, and whether it was told to ask again.
func (c *crowd) claim(t testing.TB, req store.Request) (until int64, rung bool) {
	t.Helper()
	scan(t, c.db, "SELECT until, rung FROM holdfast_claims WHERE seq > 0 AND id = "+idLiteral(req.ID), &until, &rung)
	return until, rung
}

// A waiter that asks again, although it was not woken, gets what has become free meanwhile.
func TestAWaiterThatWasNotWokenDoesNotOnlyKeepItsPlace(t *testing.T) {
	for what, test := range map[string]func(t *testing.T, c *crowd){
		"it was told through its row": func(t *testing.T, c *crowd) {
			release(t, c.holder, c.holding)
			if _, rung := c.claim(t, c.waiting); !rung {
				t.Fatal("not told")
			}
			granted(t, c.first, c.waiting)
		},
		"the grant has expired": func(t *testing.T, c *crowd) {
			mustExec(t, c.db, "UPDATE holdfast_names SET until = since + 1")
			granted(t, c.first, c.waiting)
		},
		"the waiter in front has expired": func(t *testing.T, c *crowd) {
			mustExec(t, c.db, "UPDATE holdfast_claims SET until = since + 1 WHERE id = "+idLiteral(c.waiting.ID))
			if r := refused(t, c.second, c.waitingToo); r.Place != 1 || r.Waiters != 0 {
				t.Errorf("%+v", r)
			}
			var left int
			if scan(t, c.db, "SELECT COUNT(*) FROM holdfast_claims", &left); left != 1 {
				t.Errorf("%d claims are left, want 1", left)
			}
		},
		"it has expired": func(t *testing.T, c *crowd) {
			mustExec(t, c.db, "UPDATE holdfast_claims SET until = since + 1 WHERE id = "+idLiteral(c.waiting.ID))
			if r := refused(t, c.first, c.waiting); r.Place != 2 || r.Waiters != 1 {
				t.Errorf("%+v", r)
			}
		},
		"it has another text": func(t *testing.T, c *crowd) {
			c.waiting.Meta = "new"
			refused(t, c.first, c.waiting)
			page, err := c.holder.List(limited(t), store.Query{Limit: 10})
			must(t, err)
			if meta := page.Locks[0].Waiters[0].Meta; meta != "new" {
				t.Errorf("meta %q", meta)
			}
		},
		"the tables were migrated": func(t *testing.T, c *crowd) {
			mustExec(t, c.db, fmt.Sprintf("UPDATE holdfast_meta SET compatible = %d", version+1))
			if _, err := c.first.Acquire(limited(t), c.waiting); !errors.Is(err, errIncompatible) {
				t.Errorf("%v, want %v", err, errIncompatible)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			test(t, newCrowd(t, "n"))
		})
	}
}

// A version that may no longer grant names can still undo a grant in the batch of an Acquire.
func TestAfterAMigrationGrantsEndBesideAnAcquire(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "n")
	block := request("block")
	block.Tokens = 5
	s, acquires := c.first, []store.Request{request("free"), block, c.waiting}
	ends := make([]store.Request, len(acquires))
	for i := range ends {
		ends[i] = request(fmt.Sprint("held", i))
		granted(t, s, ends[i])
	}
	mustExec(t, c.db, fmt.Sprintf("UPDATE holdfast_meta SET compatible = %d", version+1))
	for i, req := range acquires {
		s.takes.turn <- struct{}{} // so that calls queue up
		eventually(t, "the calls before have landed", func() bool { return s.takes.calls.Len() == 0 })
		s.metaRead = time.Time{}
		var wg sync.WaitGroup
		for n, call := range []func() error{
			func() error { return s.Leave(limited(t), "first", store.NewID()) }, // is sent alone
			func() error {
				if _, err := s.Acquire(limited(t), req); !errors.Is(err, errIncompatible) {
					return fmt.Errorf("%v, want %v", err, errIncompatible)
				}
				return nil
			},
			func() error { return s.Leave(limited(t), ends[i].Name, ends[i].ID) },
		} {
			wg.Go(func() {
				if err := call(); err != nil {
					t.Errorf("call %d beside the Acquire of %q: %v", n, req.Name, err)
				}
			})
			eventually(t, "the call is queued", func() bool { return s.takes.calls.Len() == n+1 })
		}
		<-s.takes.turn
		wg.Wait()
	}
	var held int
	if scan(t, c.db, "SELECT COUNT(*) FROM holdfast_names WHERE until > since AND name <> 'n'", &held); held != 0 {
		t.Errorf("%d grants are left", held)
	}
}

// A transaction that tells a waiter to ask again does not shorten its place, even if the waiter has
// kept it since the transaction read the claims.
func TestAWaiterThatIsToldToAskKeepsItsPlace(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "n")
	before, _ := c.claim(t, c.waiting)
	err := c.holder.takes.use(limited(t), func(ctx context.Context, conn *conn) error {
		tx := &transaction{s: c.holder, c: conn, entries: make(map[string]*entry)}
		if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
			return err
		}
		if err := errors.Join(tx.load(ctx, fmt.Sprintf(c.holder.sql.lock, literal("n"))), tx.loadClaims(ctx)); err != nil {
			return err
		}
		setClock(t, c.first, time.Second)
		refused(t, c.first, c.waiting)
		e := tx.entries["n"]
		e.Wake(e.Queue[0])
		if err := tx.store(ctx); err != nil {
			return err
		}
		_, err := conn.ExecContext(ctx, "COMMIT")
		return err
	})
	must(t, err)
	after, rung := c.claim(t, c.waiting)
	if kept := time.Duration(after-before) * time.Microsecond; kept < time.Second || !rung {
		t.Errorf("its place was extended by %v, want 1s or more; told to ask: %v", kept, rung)
	}
}

// A claim that was rung after it was read is not changed.
func TestAWaiterThatWasToldToAskDoesNotStay(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "n")
	release(t, c.holder, c.holding)
	before, _ := c.claim(t, c.waiting)
	mustExec(t, c.db, fmt.Sprintf(c.first.sql.stay, time.Hour.Microseconds(), claimKey("n", 1, c.waiting.ID)))
	if after, rung := c.claim(t, c.waiting); after != before || !rung {
		t.Errorf("its place ends %d µs later; told to ask: %v", after-before, rung)
	}
}

// A waiter that is woken while it is refused again asks at once.
func TestAWaiterThatIsWokenWhileItStaysAsksAgain(t *testing.T) {
	var p waits
	w := wake.Key{Name: "n", ID: store.NewID()}
	p.Keep = time.Minute
	p.expect(w, 1, 1)
	p.Wake(w)
	p.stay(w, 1, 1)
	if _, woken := p.state(w); !woken {
		t.Error("the wake-up was lost")
	}
	p.expect(w, 1, 2)
	if _, woken := p.state(w); woken {
		t.Error("woken before the last refusal that locked the name")
	}
}

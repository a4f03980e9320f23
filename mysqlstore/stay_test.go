package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	c.holding, c.waiting, c.waitingToo = request(name), request(name), request(name)
	c.waiting.Queue, c.waitingToo.Queue = true, true
	granted(t, c.holder, c.holding)
	refused(t, c.first, c.waiting)
	refused(t, c.second, c.waitingToo)
	return c
}

// claim returns the end of a waiter's place, in µs, and whether it was told to ask again.
func (c *crowd) claim(t testing.TB, req store.Request) (until int64, rung bool) {
	t.Helper()
	query := fmt.Sprintf("SELECT until, rung FROM holdfast_claims WHERE seq > 0 AND id = %s", idLiteral(req.ID))
	if err := c.db.QueryRow(query).Scan(&until, &rung); err != nil {
		t.Fatal(err)
	}
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
			if err := c.db.QueryRow("SELECT COUNT(*) FROM holdfast_claims").Scan(&left); err != nil || left != 1 {
				t.Errorf("%d claims are left, want 1; %v", left, err)
			}
		},
		"it has expired": func(t *testing.T, c *crowd) {
			mustExec(t, c.db, "UPDATE holdfast_claims SET until = since + 1 WHERE id = "+idLiteral(c.waiting.ID))
			if r := refused(t, c.first, c.waiting); r.Place != 2 || r.Waiters != 1 {
				t.Errorf("%+v", r)
			}
		},
		"its claim is gone": func(t *testing.T, c *crowd) {
			mustExec(t, c.db, "DELETE FROM holdfast_claims WHERE id = "+idLiteral(c.waiting.ID))
			if r := refused(t, c.first, c.waiting); r.Place != 2 || r.Waiters != 1 {
				t.Errorf("%+v", r)
			}
		},
		"all is gone": func(t *testing.T, c *crowd) {
			mustExec(t, c.db, "DELETE FROM holdfast_claims", "DELETE FROM holdfast_names")
			granted(t, c.first, c.waiting)
		},
		"it gives up its place": func(t *testing.T, c *crowd) {
			c.waiting.Queue = false
			if r := refused(t, c.first, c.waiting); r.Place != 0 || r.Waiters != 1 {
				t.Errorf("%+v", r)
			}
		},
		"it asks for another mode": func(t *testing.T, c *crowd) {
			c.waiting.Mode = store.Shared
			if _, err := c.first.Acquire(limited(t), c.waiting); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%v, want ErrInvalid", err)
			}
		},
		"it has another text": func(t *testing.T, c *crowd) {
			c.waiting.Meta = "new"
			refused(t, c.first, c.waiting)
			page, err := c.holder.List(limited(t), store.Query{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
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

// Waiters in a batch stay, unless they were told to ask or lose their place meanwhile.
func TestABatchOfWaiters(t *testing.T) {
	t.Parallel()
	db := connectTo(t, nil)
	holder, s := newIn(t, db), newIn(t, db)
	names := []string{"a", "b", "c"}
	holding, waiting := make(map[string]store.Request), make(map[string]store.Request)
	for _, name := range names {
		holding[name] = request(name)
		granted(t, holder, holding[name])
		req := queued(name)
		waiting[name] = req
		refused(t, s, req)
	}
	ask := func() map[string]store.Answer {
		answers := make(map[string]store.Answer)
		var calls []*call
		for _, name := range names {
			req := waiting[name]
			calls = append(calls, &call{
				name: name, born: true, stay: &req,
				answered: func(a store.Answer) { answers[name] = a },
				do:       func(e *entry) (err error) { answers[name], err = e.ask(&req); return err },
			})
		}
		s.takes.send(limited(t), calls)
		for _, one := range calls {
			if one.err != nil {
				t.Fatalf("%s: %v", one.name, one.err)
			}
		}
		return answers
	}
	lock := lockRow(t, db, "a") // no transaction can be made now
	for name, answer := range ask() {
		if answer.Refusal == nil || answer.Refusal.Place != 1 {
			t.Errorf("%s: %+v", name, answer)
		}
	}
	lock.Rollback()

	// The claim of c is removed after it was read.
	remove, err := db.BeginTx(limited(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer remove.Rollback()
	if _, err := remove.Exec("DELETE FROM holdfast_claims WHERE name = 'c'"); err != nil {
		t.Fatal(err)
	}
	removed := make(chan error)
	go func() {
		for waits := 0; waits == 0; {
			if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE %" + waiting["c"].ID.String() + "%'").Scan(&waits); err != nil {
				removed <- err
				return
			}
		}
		removed <- remove.Commit()
	}()
	for name, answer := range ask() {
		if answer.Refusal == nil || answer.Refusal.Place != 1 {
			t.Errorf("%s: %+v", name, answer)
		}
	}
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	var claims int
	if err := db.QueryRow("SELECT COUNT(*) FROM holdfast_claims").Scan(&claims); err != nil || claims != len(names) {
		t.Errorf("%d waiters are queued, want %d; %v", claims, len(names), err)
	}

	// The waiter of b is told to ask, but the name is kept closed. The others stay.
	if err := holder.Release(limited(t), "b", holding["b"].ID, store.Keep{State: store.Cooling, For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	lock = lockRow(t, db, "a")
	for name, answer := range ask() {
		if answer.Refusal == nil || answer.Refusal.Place != 1 {
			t.Errorf("%s: %+v", name, answer)
		}
	}
	lock.Rollback()

	if err := holder.Break(limited(t), "b", holding["b"].ID); err != nil {
		t.Fatal(err)
	}
	for name, answer := range ask() {
		if answer.Granted() != (name == "b") {
			t.Errorf("%s: %+v", name, answer)
		}
	}
}

// A waiter that is woken while it is refused again asks at once.
func TestAWaiterThatIsWokenWhileItStaysAsksAgain(t *testing.T) {
	var p waits
	told := func(place int) *refusal { return &refusal{Refusal: store.Refusal{Place: place}} }
	w := wake.Key{Name: "n", ID: store.NewID()}
	p.Keep = time.Minute
	p.expect(w, 1, told(1))
	p.Wake(w)
	p.stay(w, 1, told(1))
	if _, woken := p.state(w); !woken {
		t.Error("the wake-up was lost")
	}
	p.expect(w, 1, told(2))
	if _, woken := p.state(w); woken {
		t.Error("woken before the last refusal that locked the name")
	}
}

// selects returns how many statements of a store's connection have read rows.
func selects(t testing.TB, s *Store) (n int) {
	t.Helper()
	err := s.takes.use(limited(t), func(ctx context.Context, c *conn) error {
		return c.QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Com_select'").Scan(new(string), &n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A waiter that asks again while nothing has changed keeps its place with one statement, which does
// not wait for rows of others, and gets the same answer.
func TestAWaiterKeepsItsPlaceWithOneStatement(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "n")
	refused(t, c.first, c.waiting) // it knows of the second waiter now
	for i, waiter := range []struct {
		s          *Store
		req, other store.Request
	}{{c.first, c.waiting, c.waitingToo}, {c.second, c.waitingToo, c.waiting}} {
		want := refused(t, waiter.s, waiter.req)
		lock := lockRow(t, c.db, "n")
		if _, err := lock.Exec("SELECT * FROM holdfast_claims WHERE " + claimKey("n", int64(2-i), waiter.other.ID) + " FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		count := selects(t, waiter.s)
		before, _ := c.claim(t, waiter.req)
		r := refused(t, waiter.s, waiter.req)
		if n := selects(t, waiter.s) - count; n != 0 {
			t.Errorf("waiter %d: %d statements that read, want none", i+1, n)
		}
		if after, _ := c.claim(t, waiter.req); after <= before {
			t.Errorf("waiter %d: its place ends at %d, and did at %d before it asked again", i+1, after, before)
		}
		lock.Rollback()
		if r.Place != want.Place || r.Waiters != want.Waiters || len(r.Holders) != 1 || r.Holders[0].ID != c.holding.ID || r.Again != c.first.again() {
			t.Errorf("waiter %d: %+v, want %+v", i+1, r, want)
		}
		if was, is := want.Holders[0], r.Holders[0]; is.Left > was.Left || is.Left < was.Left-patience || is.Age < was.Age {
			t.Errorf("waiter %d: holder %+v, and before %+v", i+1, is, was)
		}
	}
}

// A waiter that asks again learns of what has changed since, and that is not only its turn.
func TestAWaiterLearnsOfChanges(t *testing.T) {
	for what, test := range map[string]func(t *testing.T, c *crowd){
		"the waiter in front is replaced by one behind": func(t *testing.T, c *crowd) {
			if err := c.first.Leave(limited(t), "n", c.waiting.ID); err != nil {
				t.Fatal(err)
			}
			late := queued("n")
			refused(t, c.first, late)
			if r := refused(t, c.second, c.waitingToo); r.Place != 1 || r.Waiters != 1 {
				t.Errorf("%+v, want place 1 and one other waiter", r)
			}
		},
		"the waiter in front will lose its place": func(t *testing.T, c *crowd) {
			soon := fmt.Sprintf(withTables("UPDATE {{claims}} SET until = {{now}} + %d WHERE id = %s", DefaultPrefix), c.first.again().Microseconds()/2, idLiteral(c.waiting.ID))
			mustExec(t, c.db, soon)
			if r := refused(t, c.second, c.waitingToo); r.Again > c.second.again()/2 {
				t.Errorf("asks again after %v, want %v at most", r.Again, c.second.again()/2)
			}
		},
		"the grant was renewed, and would have expired by now": func(t *testing.T, c *crowd) {
			c.second.waits.Lock()
			for _, w := range c.second.waits.All {
				w.Value.last.left = time.Since(w.Value.last.read)
			}
			c.second.waits.Unlock()
			left := 10 * time.Minute
			renewal := []store.Renewal{{Name: "n", ID: c.holding.ID, TTL: left, Mode: c.holding.Mode}}
			if _, err := c.holder.Renew(limited(t), renewal); err != nil {
				t.Fatal(err)
			}
			if r := refused(t, c.second, c.waitingToo); r.Holders[0].Left < left-patience {
				t.Errorf("the holder has %v left, want %v", r.Holders[0].Left, left)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, "n")
			refused(t, c.second, c.waitingToo)
			test(t, c)
		})
	}
}

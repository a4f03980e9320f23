package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A batchOf is a batch of calls, each on a name of its own.
type batchOf struct {
	t        testing.TB
	s        *Store
	requests []store.Request
	answers  []store.Answer
}

// takeCall returns a call that acquires a name.
func takeCall(r *store.Request) *call {
	c := &call{name: r.Name, req: r, take: true}
	c.do = func(e *entry) (err error) { c.answer, err = e.ask(r); return err }
	return c
}

func newBatch(t testing.TB, s *Store, n int) *batchOf {
	b := &batchOf{t: t, s: s, answers: make([]store.Answer, n)}
	for i := range n {
		r := request(fmt.Sprintf("batch %d/%d", n, i))
		r.Tokens = i + 1
		b.requests = append(b.requests, r)
	}
	return b
}

// acquire takes the names, and returns how many transactions that needed.
func (b *batchOf) acquire() (transactions int) {
	b.t.Helper()
	var calls []*call
	for i := range b.requests {
		calls = append(calls, takeCall(&b.requests[i]))
	}
	before := begun(b.t, b.s.takes)
	b.s.takes.send(b.t.Context(), calls)
	for i, c := range calls {
		if c.err != nil {
			b.t.Fatalf("%s: %v", c.name, c.err)
		}
		b.answers[i] = c.answer
	}
	return begun(b.t, b.s.takes) - before
}

// release releases the names, and returns the error of each.
func (b *batchOf) release() (errs []error) {
	var calls []*call
	for i := range b.requests {
		calls = append(calls, releaseCall(b.requests[i].Name, b.requests[i].ID, store.Keep{}))
	}
	b.s.takes.send(b.t.Context(), calls)
	for _, c := range calls {
		errs = append(errs, c.err)
	}
	return errs
}

// begun returns how many transactions the session of a lane has begun, without single statements.
func begun(t testing.TB, l *lane) (n int) {
	t.Helper()
	must(t, l.use(limited(t), func(ctx context.Context, c *conn) error {
		return c.QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Com_begin'").Scan(new(string), &n)
	}))
	return n
}

// checkTokens compares the answers with the rows, and with earlier answers, if there are any.
func (b *batchOf) checkTokens(before []store.Answer) {
	b.t.Helper()
	for i, r := range b.requests {
		var last int64
		a := b.answers[i]
		scan(b.t, b.s.db, "SELECT last FROM holdfast_names WHERE name = '"+r.Name+"' AND id = x'"+r.ID.String()+"'", &last)
		if a.Tokens != i+1 || last != a.Token+int64(i) || before != nil && a.Token < before[i].Token+int64(before[i].Tokens) {
			b.t.Errorf("%s: granted %d tokens from %d; the last one is %d", r.Name, a.Tokens, a.Token, last)
		}
	}
}

// Batches of all sizes need one statement, whether or not the names have rows.
func TestABatchOfFreeNamesIsGrantedInOneStatement(t *testing.T) {
	s := newIn(t, connectTo(t, nil))
	for _, n := range []int{1, 2, 3, 5, 8, 9, 31, 33} {
		first := newBatch(t, s, n)
		if transactions := first.acquire(); transactions != 0 {
			t.Errorf("%d new names needed %d transactions", n, transactions)
		}
		first.checkTokens(nil)
		must(t, errors.Join(first.release()...))
		second := newBatch(t, s, n)
		if transactions := second.acquire(); transactions != 0 {
			t.Errorf("%d names with rows needed %d transactions", n, transactions)
		}
		second.checkTokens(first.answers)
	}
}

// One name that is not free does not keep the other names of its batch from being granted, and is
// not granted itself.
func TestABatchWithANameThatIsHeldGrantsTheOthers(t *testing.T) {
	db := connectTo(t, nil)
	s, other := newIn(t, db), newIn(t, db)
	const n, taken = 11, 4
	b := newBatch(t, s, n)
	held := request(b.requests[taken].Name)
	first := granted(t, other, held)
	b.acquire()
	for i, a := range b.answers {
		if a.Granted() == (i == taken) {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if holder := b.answers[taken].Refusal.Holders[0]; holder.ID != held.ID || holder.Token != first.Token {
		t.Errorf("held by %+v, want %v", holder, held.ID)
	}
	for i, err := range b.release() {
		if (err != nil) != (i == taken) || i == taken && !errors.Is(err, store.ErrNotHeld) {
			t.Errorf("release %d: %v", i, err)
		}
	}
	if again := granted(t, other, held); again.Token != first.Token {
		t.Errorf("token %d, then %d: the grant was replaced", first.Token, again.Token)
	}
}

// On a server that allows no more prepared statements, names are granted and released in
// transactions.
func TestNamesAreGrantedWithoutPreparedStatements(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	s := newIn(t, poolAt(t, server, nil))
	r := request("single")
	granted(t, s, r)
	mustExec(t, s.db, "SET GLOBAL max_prepared_stmt_count = 0")
	release(t, s, r)
	b := newBatch(t, s, 3)
	b.acquire()
	b.checkTokens(nil)
	must(t, errors.Join(b.release()...))
}

func TestConcurrentRenewalsShareATransaction(t *testing.T) {
	s := newIn(t, connectTo(t, nil))
	hold := func() func() {
		s.gives.turn <- struct{}{}
		return func() { <-s.gives.turn }
	}
	const most = 2 // one alone, the others together
	suites.RenewalsShare(t, s, most, hold, s.gives.calls.Len, func() int { return begun(t, s.gives) })
}

// An invalid renewal does not keep the others that are queued with it from being made. The same
// grant may be among them twice.
func TestAnInvalidRenewalDoesNotAffectOthersThatAreQueued(t *testing.T) {
	s := newIn(t, connectTo(t, nil))
	invalid := request("invalid")
	invalid.Mode = store.Shared
	granted(t, s, invalid)
	a, b := request("a"), request("b")
	granted(t, s, a)
	granted(t, s, b)
	for _, queued := range [][]store.Request{{a, b, invalid}, {a, b, b}, {a, b, b, invalid}} {
		s.gives.turn <- struct{}{} // so that they queue up
		eventually(t, "the calls before have landed", func() bool { return s.gives.calls.Len() == 0 })
		var wg sync.WaitGroup
		for i, r := range queued {
			wg.Go(func() {
				out, err := s.Renew(limited(t), []store.Renewal{{Name: r.Name, ID: r.ID, TTL: r.TTL, Mode: store.Exclusive}})
				if r.ID == invalid.ID {
					if err != nil || !errors.Is(out[0].Err, store.ErrInvalid) {
						t.Errorf("an invalid renewal: %+v, %v", out, err)
					}
				} else if err != nil || out[0].Status != store.Extended {
					t.Errorf("%s: %+v, %v", r.Name, out, err)
				}
			})
			eventually(t, "the renewal is queued", func() bool { return s.gives.calls.Len() == i+1 })
		}
		<-s.gives.turn
		wg.Wait()
	}
}

// A grant of the same microsecond is not mistaken for a row that fills the statement.
func TestBatchRefusesANameThatWasGrantedInTheSameMicrosecond(t *testing.T) {
	db := connectTo(t, nil)
	s, other := newIn(t, db), newIn(t, db)
	for _, one := range []*Store{s, other} {
		execIn(t, one.takes, "SET SESSION timestamp = 1900000000.123456")
	}
	b := newBatch(t, s, 3)
	granted(t, other, request(b.requests[1].Name))
	b.acquire()
	if b.answers[1].Granted() || !b.answers[0].Granted() || !b.answers[2].Granted() {
		t.Errorf("%+v", b.answers)
	}
}

// Blocks of different lengths in one batch do not overlap with earlier ones, even if the longest is not
// the last one.
func TestBlocksOfDifferentLengths(t *testing.T) {
	s := newIn(t, connectTo(t, nil))
	b := newBatch(t, s, 3)
	last := make([]int64, 3)
	for range 3 {
		for i, n := range []int{rules.MaxBlock, 2, 2} {
			b.requests[i].ID, b.requests[i].Tokens = store.NewID(), n
		}
		b.acquire()
		for i, a := range b.answers {
			if a.Token <= last[i] {
				t.Errorf("%d: token %d after %d", i, a.Token, last[i])
			}
			last[i] = a.Token + int64(a.Tokens) - 1
		}
		b.release()
	}
}

// If a later version migrates the tables while a batch waits for a row, no name of the batch is granted
// to a caller that is told otherwise.
func TestMigrationDuringABatchContradictsNoGrant(t *testing.T) {
	db := connectTo(t, nil)
	s := newIn(t, db)
	one, block := request("one"), request("block")
	block.Tokens = 10
	suites.TokenOf(t, s, one.Name) // so that there is a row
	tx := lockRow(t, db, "one")
	s.metaRead = time.Now().Add(-metaFresh + 300*time.Millisecond)
	migrated := make(chan struct{})
	go func() {
		defer close(migrated)
		time.Sleep(200 * time.Millisecond)
		mustExec(t, db, "UPDATE holdfast_meta SET compatible = 99")
		time.Sleep(300 * time.Millisecond)
		tx.Rollback()
	}()
	calls := []*call{takeCall(&one), takeCall(&block)}
	s.takes.send(t.Context(), calls)
	<-migrated
	for _, c := range calls {
		page, err := s.List(limited(t), store.Query{Name: c.name})
		must(t, err)
		if (c.err == nil) != (len(page.Locks) == 1) {
			t.Errorf("%s: %v, but %d holders", c.name, c.err, len(page.Locks))
		}
	}
}

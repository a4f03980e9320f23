package sqlstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/sqlstore"
	"github.com/holdfast-lock/holdfast/store"
)

// Calls at random, with time passing at random, are answered as the reference answers
// them: everything but the tokens' values, which have an order only.
func TestSQLiteAnswersAsTheReferenceDoes(t *testing.T) {
	steps := 3000
	if raceEnabled || testing.Short() {
		steps = 500
	}
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compare(t, seed, steps) })
		})
	}
}

// A duel makes the same calls to both stores.
type duel struct {
	*testing.T
	ours, theirs store.Store
	names        []string
	ids          []store.ID
	grants       map[store.ID]store.Request // asked for, by identity
	last         map[string]int64           // highest token, by name
	log          []string
	rand         *rand.Rand
}

func compare(t *testing.T, seed uint64, steps int) {
	path := filepath.Join(t.TempDir(), "locks.db")
	clock := sqlstore.Clock{
		Boot: "test", Steady: seed%2 == 0,
		Now:  func() int64 { return time.Now().UnixNano() },
		Wall: func() int64 { return time.Now().UnixNano() },
	}
	handles := make([]store.Store, 2)
	for i := range handles {
		s, err := sqlstore.OpenSQLiteAt(t.Context(), path, clock)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		sqlstore.Deafen(s) // fake time stands still while a goroutine reads from a socket
		sqlstore.SetHeartbeat(s, memstore.New().Capabilities().Heartbeat)
		handles[i] = s
	}
	d := &duel{
		T: t, theirs: memstore.New(),
		names:  []string{"a", "a/b", "c"},
		grants: map[store.ID]store.Request{}, last: map[string]int64{},
		rand: rand.New(rand.NewPCG(seed, 1)),
	}
	for range 8 {
		d.ids = append(d.ids, store.NewID())
	}
	for range steps {
		d.ours = handles[d.rand.IntN(len(handles))]
		d.step()
		if t.Failed() {
			t.Fatalf("the last steps:\n%s", strings.Join(d.log[max(0, len(d.log)-12):], "\n"))
		}
	}
	if err := sqlstore.Intact(path); err != nil {
		t.Error(err)
	}
}

func (d *duel) step() {
	d.log = append(d.log, "")
	name := d.names[d.rand.IntN(len(d.names))]
	i := d.rand.IntN(len(d.ids))
	id := d.ids[i]
	switch d.rand.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		d.acquire(name, id)
	case 6, 7, 8:
		d.release(name, id)
	case 9, 10:
		d.leave(name, id)
	case 11, 12, 13:
		d.renew(name, id)
	case 14:
		d.breaks(name, id)
	case 15, 16:
		d.list()
	case 17:
		d.ids[i] = store.NewID()
	default:
		pause := time.Duration(d.rand.IntN(1500)) * time.Millisecond
		d.say("sleep %v", pause)
		time.Sleep(pause)
	}
	time.Sleep(time.Microsecond) // a token takes that long
}

func (d *duel) say(format string, args ...any) {
	d.log[len(d.log)-1] += fmt.Sprintf(format, args...)
}

func (d *duel) acquire(name string, id store.ID) {
	req, again := d.grants[id]
	if !again || d.rand.IntN(10) == 0 {
		req = store.Request{ID: id, Mode: store.Mode(1 + d.rand.IntN(3)), Weight: 1, Owner: fmt.Sprint(d.rand.IntN(10)), Meta: "m"}
		if req.Mode == store.Permits {
			req.Limit = 3 + d.rand.IntN(8)/7
			req.Weight = 1 + d.rand.IntN(3)
		}
		d.grants[id] = req
	}
	req.Name, req.TTL = name, time.Duration(1+d.rand.IntN(3000))*time.Millisecond
	req.Tokens = 1 + d.rand.IntN(3)*d.rand.IntN(3)
	req.Queue = d.rand.IntN(2) == 0
	if d.rand.IntN(5) == 0 {
		req.Floor = d.aFloor(name)
	}
	d.say("acquire %q %v: %s %d/%d ttl %v queue %v", name, id, req.Mode, req.Weight, req.Limit, req.TTL, req.Queue)
	ours, err := d.ours.Acquire(context.Background(), req)
	theirs, want := d.theirs.Acquire(context.Background(), req)
	d.sameError(err, want)
	if ours.Granted() != theirs.Granted() {
		d.Errorf("granted %v, want %v", ours.Granted(), theirs.Granted())
		return
	}
	if !ours.Granted() {
		o, t := *ours.Refusal, *theirs.Refusal
		d.sameHolders(o.Holders, t.Holders)
		if o.Place != t.Place || o.Waiters != t.Waiters || o.Again <= 0 {
			d.Errorf("refusal %+v, want %+v", o, t)
		}
		return
	}
	if err != nil {
		return
	}
	if ours.Tokens != theirs.Tokens || ours.TTL != theirs.TTL || ours.Waiters != theirs.Waiters {
		d.Errorf("answer %+v, want %+v", ours, theirs)
	}
	d.tokens(name, ours.Token, ours.Tokens, req.Floor, theirs.Token)
}

// aFloor is somewhat above the tokens of a name, or what the clock would give.
func (d *duel) aFloor(name string) int64 {
	base := d.last[name]
	if d.rand.IntN(2) == 0 {
		base = time.Now().UnixMicro()
	}
	return base + int64(d.rand.IntN(3000))
}

// tokens wants a block to be new, and above all others of its name, if it is new to the
// reference.
func (d *duel) tokens(name string, token int64, tokens int, floor, reference int64) {
	const seen = "\x00" // ahead of the references, which are numbers of their own
	if reference <= d.last[seen+name] {
		return // asked for again
	}
	d.last[seen+name] = reference
	if token <= d.last[name] || token <= floor {
		d.Errorf("token %d, want one above %d and the floor %d", token, d.last[name], floor)
	}
	d.last[name] = token + int64(tokens) - 1
}

func (d *duel) release(name string, id store.ID) {
	var keep store.Keep
	switch d.rand.IntN(4) {
	case 0:
		keep = store.Keep{State: store.State(d.rand.IntN(4)), For: time.Duration(d.rand.IntN(2000)) * time.Millisecond}
	}
	d.say("release %q %v, %v for %v", name, id, keep.State, keep.For)
	d.sameError(d.ours.Release(context.Background(), name, id, keep), d.theirs.Release(context.Background(), name, id, keep))
}

func (d *duel) leave(name string, id store.ID) {
	d.say("leave %q %v", name, id)
	d.sameError(d.ours.Leave(context.Background(), name, id), d.theirs.Leave(context.Background(), name, id))
}

func (d *duel) breaks(name string, id store.ID) {
	d.say("break %q %v", name, id)
	d.sameError(d.ours.Break(context.Background(), name, id), d.theirs.Break(context.Background(), name, id))
}

func (d *duel) renew(name string, id store.ID) {
	r := store.Renewal{Name: name, ID: id, TTL: time.Duration(1+d.rand.IntN(3000)) * time.Millisecond, Mode: d.grants[id].Mode}
	if d.rand.IntN(5) == 0 {
		r.Mode = store.Mode(1 + d.rand.IntN(3))
	}
	if d.rand.IntN(3) == 0 {
		r.Tokens = d.rand.IntN(5)
	}
	if d.rand.IntN(5) == 0 {
		r.Floor = d.aFloor(name)
	}
	d.say("renew %q %v: %s %v, %d tokens above %d", name, id, r.Mode, r.TTL, r.Tokens, r.Floor)
	ours, err := d.ours.Renew(context.Background(), []store.Renewal{r})
	theirs, want := d.theirs.Renew(context.Background(), []store.Renewal{r})
	d.sameError(err, want)
	if err != nil || want != nil {
		return
	}
	o, t := ours[0], theirs[0]
	if o.Status != t.Status || o.TTL != t.TTL || o.Tokens != t.Tokens {
		d.Errorf("renewed %+v, want %+v", o, t)
	}
	if o.Tokens > 0 {
		d.tokens(name, o.Token, o.Tokens, r.Floor, t.Token)
	}
	if o.Status == store.Extended {
		d.last[name] = max(d.last[name], r.Floor)
		if g := d.grants[id]; g.Mode == store.Exclusive {
			g.Mode = r.Mode
			d.grants[id] = g
		}
	}
}

func (d *duel) list() {
	q := store.Query{Limit: 1 + d.rand.IntN(3)}
	if d.rand.IntN(2) == 0 {
		q.Prefix = "a"
	}
	d.say("list %+v", q)
	read := func(s store.Store) (locks []store.Lock) {
		for q := q; ; {
			page, err := s.List(context.Background(), q)
			if err != nil {
				d.Fatalf("List: %v", err)
			}
			locks = append(locks, page.Locks...)
			if q.Cursor = page.Next; page.Next == "" {
				return locks
			}
		}
	}
	ours, theirs := read(d.ours), read(d.theirs)
	if len(ours) != len(theirs) {
		d.Fatalf("listed %+v, want %+v", ours, theirs)
	}
	for i, o := range ours {
		t := theirs[i]
		if o.Name != t.Name || o.Limit != t.Limit || !slices.Equal(o.Waiters, t.Waiters) {
			d.Errorf("listed %+v, want %+v", o, t)
		}
		d.sameHolders(o.Holders, t.Holders)
	}
}

func (d *duel) sameHolders(ours, theirs []store.Holder) {
	d.Helper()
	older := func(a, b store.Holder) int { return cmp.Compare(b.Age, a.Age) }
	slices.SortFunc(theirs, older) // they are in order of their grants, whatever was kept
	same := slices.EqualFunc(ours, theirs, func(o, t store.Holder) bool {
		o.Token = t.Token
		return o == t
	})
	if !same {
		d.Errorf("holders %+v, want %+v", ours, theirs)
	}
}

func (d *duel) sameError(err, want error) {
	d.Helper()
	for _, e := range []error{store.ErrInvalid, store.ErrNotHeld} {
		if errors.Is(err, e) != errors.Is(want, e) {
			d.Errorf("error %v, want %v", err, want)
			return
		}
	}
	if (err == nil) != (want == nil) {
		d.Errorf("error %v, want %v", err, want)
	}
}

package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A broken store does one thing wrong.
type broken struct {
	*memstore.Store
	acquire func(store.Request, store.Answer) store.Answer
	renew   func() error
	list    func() error
	slow    time.Duration
	hangs   bool
	extra   []store.Finding
}

func (b *broken) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	answer, err := b.Store.Acquire(ctx, req)
	if b.acquire != nil && err == nil {
		answer = b.acquire(req, answer)
	}
	return answer, err
}

func (b *broken) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if b.renew != nil {
		return nil, b.renew()
	}
	return b.Store.Renew(ctx, grants)
}

func (b *broken) List(ctx context.Context, q store.Query) (store.Page, error) {
	time.Sleep(b.slow)
	if b.hangs {
		<-ctx.Done()
		return store.Page{}, ctx.Err()
	}
	if b.list != nil {
		return store.Page{}, b.list()
	}
	return b.Store.List(ctx, q)
}

func (b *broken) Diagnose(context.Context, time.Duration) []store.Finding { return b.extra }

// levels returns the findings that are not OK, each as "id level".
func levels(findings []store.Finding) string {
	var all []string
	for _, f := range findings {
		if f.Level != store.LevelOK {
			all = append(all, f.ID+" "+f.Level.String())
			if f.Risk == "" || f.Remedy == "" || f.Found == "" {
				all = append(all, "(incomplete)")
			}
		}
	}
	return strings.Join(all, ", ")
}

func TestAHealthyStoreHasNoFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		findings := doctor.Run(t.Context(), s, 30*time.Second)
		if got := levels(findings); got != "" || len(findings) != 9 || doctor.Worst(findings) != store.LevelOK {
			t.Errorf("findings %q of %d checks", got, len(findings))
		}
		if page, err := s.List(t.Context(), store.Query{}); err != nil || len(page.Locks) != 0 {
			t.Errorf("left behind: %+v, %v", page, err)
		}
	})
}

func TestWhatIsWrongIsFound(t *testing.T) {
	grant := func(req store.Request, answer store.Answer) store.Answer {
		if !answer.Granted() {
			return store.Answer{Token: 99, Tokens: 1, TTL: req.TTL}
		}
		return answer
	}
	token := func(_ store.Request, answer store.Answer) store.Answer {
		if answer.Granted() {
			answer.Token = 7
		}
		return answer
	}
	for _, tt := range []struct {
		store *broken
		want  string
	}{
		{&broken{slow: 4 * time.Second}, "store.round-trip warning"},
		{&broken{list: func() error { return errors.New("no rights") }}, "store.answers failure, store.wake-up failure"},
		{&broken{acquire: grant}, "store.exclusion failure"},
		{&broken{renew: func() error { return errors.New("read only") }}, "store.renewal failure"},
		{&broken{acquire: token}, "store.tokens failure"},
		{&broken{extra: []store.Finding{{ID: "redis.eviction", Level: store.LevelUnknown, Found: "CONFIG is not allowed"}}}, "redis.eviction unknown, (incomplete)"},
		{&broken{hangs: true}, "store.answers failure, store.wake-up failure"},
	} {
		s, want := tt.store, tt.want
		synctest.Test(t, func(t *testing.T) {
			s.Store = memstore.New()
			findings := doctor.Run(t.Context(), s, 30*time.Second)
			if got := levels(findings); got != want {
				t.Errorf("findings %q, want %q: %+v", got, want, findings)
			}
			if doctor.Worst(findings) == store.LevelOK {
				t.Error("the worst is OK")
			}
		})
	}
}

func TestStoreWhoseMaximumTTLIsBelowThatOfTheSelfTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []quorum.Node
		for _, name := range []string{"a", "b", "c"} {
			nodes = append(nodes, quorum.Node{Name: name, Store: memstore.New()})
		}
		q, err := quorum.New(t.Context(), nodes, quorum.Options{RestartDelay: 500 * time.Millisecond, Timeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		for _, f := range doctor.Run(t.Context(), q, 500*time.Millisecond) {
			if f.Level >= store.LevelFailure {
				t.Errorf("%s: %s", f.ID, f.Found)
			}
		}
	})
}

// As etcd does with a long election timeout.
func TestAStoreThatGrantsALongerTTLIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &longStore{memstore.New()}
		findings := doctor.Run(t.Context(), s, 30*time.Second)
		if got := levels(findings); got != "" {
			t.Errorf("findings %q: %+v", got, findings)
		}
		if last := findings[len(findings)-1]; last.Found != "a waiter got the lock at most 0s later than it could" {
			t.Errorf("%s: %s", last.ID, last.Found)
		}
	})
}

// A longStore grants a TTL of at least 20 s.
type longStore struct{ *memstore.Store }

func (l *longStore) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	req.TTL = max(req.TTL, 20*time.Second)
	return l.Store.Acquire(ctx, req)
}

package sqlitestore_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/exacttest"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestConformance(t *testing.T) {
	path := newPath(t)
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store {
			s, err := store.Open(context.Background(), "sqlite:"+path)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Residue: func(t testing.TB) []string {
			rows, err := sqlitestore.Rows(path)
			if err != nil {
				t.Fatal(err)
			}
			return rows
		},
		Slack:    time.Second,
		Parallel: 8, // most tests wait for a TTL or a heartbeat to end
	})
	if err := sqlitestore.Intact(path); err != nil {
		t.Error(err)
	}
}

// With a clock that cannot be set back, and with one that can.
func TestExactness(t *testing.T) {
	for _, steady := range []bool{true, false} {
		w := newHost(t)
		w.steady = steady
		s := w.open()
		exacttest.Run(t, func(t *testing.T, test func(t *testing.T, s exacttest.Store)) {
			woken := func(name string, id store.ID) bool { return sqlitestore.Woken(s, name, id) }
			test(t, exacttest.Store{Store: s, Woken: woken, Sleep: w.pass})
		})
		if err := sqlitestore.Intact(w.path); err != nil {
			t.Error(err)
		}
	}
}

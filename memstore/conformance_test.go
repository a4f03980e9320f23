package memstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestConformance(t *testing.T) { storetest.Run(t, harness()) }

func harness() storetest.Harness {
	// This is not the context of the test, which has ended when the test cleans up.
	open := func(t testing.TB) *memstore.Store {
		s, err := store.Open(context.Background(), "memory:conformance")
		if err != nil {
			t.Fatal(err)
		}
		return s.(*memstore.Store)
	}
	return storetest.Harness{
		Slack: time.Millisecond, // the store and the suite share a clock
		Around: func(t *testing.T, test func(t *testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				// This handle stands for the server: locks outlive the connections of a test, but
				// not the test.
				server := open(t)
				t.Cleanup(func() { server.Close() })
				test(t)
			})
		},
		Open: func(t testing.TB) store.Store { return open(t) },
		Residue: func(t testing.TB) []string {
			s := open(t)
			defer s.Close()
			return memstore.Names(s)
		},
	}
}

func TestExactness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		defer s.Close()
		suites.Exactness(t, s, time.Sleep)
	})
}

func TestCompare(t *testing.T) {
	storetest.Compare(t, harness(), storetest.CompareOptions{Exact: true})
}

package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func harness(p *servers.Postgres, url string) storetest.Harness {
	return storetest.Harness{
		Open: func(t testing.TB) store.Store {
			s, err := store.Open(context.Background(), url)
			must(t, err)
			pgstore.SetHeartbeat(s.(*pgstore.Store), 2*time.Second)
			return s
		},
		Residue:  func(t testing.TB) []string { return rows(t, p, "conformance") },
		TTL:      2 * time.Second, // on a busy machine, a commit may take a second
		Parallel: 8,
	}
}

func TestConformance(t *testing.T) {
	p := server(t)
	storetest.Run(t, harness(p, p.URL()+"&schema=conformance"))
}

func TestCompare(t *testing.T) {
	p := server(t)
	storetest.Compare(t, harness(p, p.URL()+"&schema=conformance"), storetest.CompareOptions{Sequences: 400})
}

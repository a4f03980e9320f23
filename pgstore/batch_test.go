package pgstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/store"
)

// Batches of several clients contain the same names in different orders.
func TestBatchesDoNotDeadlock(t *testing.T) {
	p := server(t)
	const names = 8
	before := number(t, p, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")
	var wg sync.WaitGroup
	for range 4 {
		s := open(t, p.URL()+"&schema=batches&pool_max_conns=2")
		for range 16 {
			wg.Go(func() {
				for range 40 {
					r := request(fmt.Sprint("name", rand.IntN(names)))
					answer, err := s.Acquire(t.Context(), r)
					if err == nil && answer.Granted() {
						err = s.Release(t.Context(), r.Name, r.ID, store.Keep{})
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if after := number(t, p, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"); after != before {
		t.Errorf("%d deadlocks", after-before)
	}
}

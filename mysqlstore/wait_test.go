package mysqlstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// The longer a queue does not move, the less often it is checked. In the end each waiting process
// sends three statements every two seconds, however many goroutines wait in it.
func TestAProcessThatWaitsForLongSendsFewStatements(t *testing.T) {
	t.Parallel()
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	open := func() (*Store, *holdfast.Client) {
		s := newIn(t, poolAt(t, server, nil))
		s.sweep.next = time.Now().Add(time.Hour)
		c := suites.Client(t, s, holdfast.WithTTL(10*time.Minute)) // no renewals
		return s, c
	}
	_, holder := open()
	_, err := holder.Lock(t.Context(), "n")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	const processes, goroutines = 3, 5
	var stores []*Store
	for range processes {
		s, c := open()
		stores = append(stores, s)
		for range goroutines {
			wg.Go(func() { c.Lock(ctx, "n") })
		}
	}
	admin := poolAt(t, server, nil)
	eventually(t, "all processes know the queue", func() bool {
		knows := 0
		for _, s := range stores {
			s.waits.Lock()
			for _, w := range s.waits.All {
				if w.Value.place > 0 {
					w.Value.begin = time.Now().Add(-time.Minute) // as if it had waited for that long
					knows++
				}
			}
			s.waits.Unlock()
		}
		return knows == processes
	})
	statements := func() (n int) {
		scan(t, admin, "SHOW GLOBAL STATUS LIKE 'Questions'", new(string), &n)
		return n
	}
	statements() // the connection of the test is open now
	before, begin := statements(), time.Now()
	time.Sleep(8 * time.Second)
	n, took := statements()-before-1, time.Since(begin)
	if rate := float64(n) / took.Seconds() / processes; rate > 1.8 || rate < 0.9 {
		t.Errorf("%d statements of %d processes in %v, %.2f/s for each, want 1.5", n, processes, took, rate)
	}
}

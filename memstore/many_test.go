//go:build !race

package memstore_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// The holders of a semaphore are renewed one by one. If each renewal looked at all of them, those of
// a large semaphore would not end before the first of them expire.
func TestTheHoldersOfALargeSemaphoreAreRenewedInTime(t *testing.T) {
	const holders, limit = 20_000, 2 * time.Second
	s := memstore.New()
	defer s.Close()
	var renewals []store.Renewal
	for range holders {
		req := request("n")
		req.Mode, req.Limit, req.TTL = store.Permits, holders, time.Hour
		granted(t, s, req)
		renewals = append(renewals, suites.Renewal(req))
	}
	begin := time.Now()
	suites.AllExtended(t, s, renewals...)
	if took := time.Since(begin); took > limit {
		t.Errorf("%d renewals took %v, want less than %v", holders, took, limit)
	}
}

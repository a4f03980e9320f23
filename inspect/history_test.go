package inspect

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// Browsers wait while two listings of a long queue are compared.
func TestALongQueueIsComparedQuickly(t *testing.T) {
	const many = 50_000
	queue := func() *snapshot {
		lock := holdfast.Info{Name: "job"}
		for range many {
			lock.Waiters = append(lock.Waiters, holdfast.Waiter{ID: store.NewID()})
			lock.Holders = append(lock.Holders, holdfast.Holder{ID: store.NewID()})
		}
		return &snapshot{at: time.Now(), locks: []holdfast.Info{lock}}
	}
	before, after := queue(), queue()
	var h history
	begin := time.Now()
	h.note(before, after)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("%v for %d holders and waiters", took, many)
	}
	if r := h.of("job"); len(r.Events) != maxEvents || len(r.Held) != maxTimes {
		t.Errorf("%d events, %d times", len(r.Events), len(r.Held))
	}
}

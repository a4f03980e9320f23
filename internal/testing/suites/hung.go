package suites

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// slack is for a busy machine.
const slack = 1500 * time.Millisecond

// Hung opens a client by a URL whose servers stop answering when hang is called. Other is the URL of
// the same servers, which answer.
func Hung(t *testing.T, url, other string, hang func()) {
	holder, c := openURL(t, other), openURL(t, url)
	lease, err := holder.Lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Unlock(context.Background())
	ended := make(chan error, 2)
	lock := func(name string) {
		_, err := c.Lock(context.Background(), name)
		ended <- err
	}
	go lock("held")
	Eventually(t, "the call does not wait", func() bool {
		lock, err := holder.Inspect(t.Context(), "held")
		return err == nil && len(lock.Waiters) == 1
	})
	hang()
	began := time.Now()
	go lock("held") // behind the call that waits
	for range 2 {
		if err := <-ended; !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	}
	if took, limit := time.Since(began), 6*time.Second+slack; took > limit {
		t.Errorf("the calls gave up after %v, want %v at most", took, limit)
	}
	go lock("other")
	time.Sleep(100 * time.Millisecond) // until the call is in flight
	began = time.Now()
	c.Close()
	if took, limit := time.Since(began), 6*time.Second+slack; took > limit {
		t.Errorf("Close took %v, want %v at most", took, limit)
	}
	<-ended
}

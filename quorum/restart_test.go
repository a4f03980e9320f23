package quorum_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

func TestLongestRestartDelayIsNotOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, delay := range []time.Duration{math.MaxInt64, math.MaxInt64 / 101 * 100} {
			_, q := serverNodesWith(t, 3, time.Second, quorum.Options{RestartDelay: delay})
			c, err := holdfast.New(q)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.TryLock(t.Context(), "n"); err == nil {
				t.Errorf("delay %v: granted by nodes that have just started", delay)
			}
			c.Close()
		}
	})
}

func TestRestartDelayBelowTheShortestTTLIsRefused(t *testing.T) {
	var nodes []quorum.Node
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, quorum.Node{Name: name, Store: memstore.New()})
	}
	q, err := quorum.New(t.Context(), nodes, quorum.Options{RestartDelay: time.Millisecond})
	if !errors.Is(err, store.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if err == nil {
		_, err = holdfast.New(q)
		t.Logf("holdfast.New: %v", err)
		_, err = holdfast.New(q, holdfast.WithTTL(time.Second))
		t.Logf("holdfast.New with a TTL: %v", err)
		q.Close()
	}
}

// Another client may use the default TTL, and clocks drift.
func TestDefaultRestartDelayIncludesTheDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := serverNodesWith(t, 3, quorum.DefaultRestartDelay, quorum.Options{})
		c, err := holdfast.New(q, holdfast.WithTTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.TryLock(t.Context(), "n"); err == nil {
			t.Error("granted by nodes that may have forgotten a lease with the default TTL")
		}
		time.Sleep(quorum.DefaultRestartDelay / 50)
		if _, err := c.TryLock(t.Context(), "n"); err != nil {
			t.Error(err)
		}
	})
}

func TestDoctorDoesNotAcceptATTLThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 10 * time.Second
		_, q := serverNodesWith(t, 3, time.Hour, quorum.Options{RestartDelay: delay})
		for ttl, want := range map[time.Duration]store.Level{delay: store.LevelOK, delay + delay/200: store.LevelFailure} {
			for _, f := range q.Diagnose(t.Context(), ttl) {
				if f.ID == "quorum.restart-delay" && f.Level != want {
					t.Errorf("TTL %v: %v: %s", ttl, f.Level, f.Found)
				}
			}
		}
	})
}

func TestTimesThatAreNotTTLsMayExceedTheRestartDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 10 * time.Second
		_, q := serverNodesWith(t, 3, time.Hour, quorum.Options{RestartDelay: delay})
		c, err := holdfast.New(q)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, nothing := t.Context(), func(context.Context) error { return nil }
		if err := c.Once(ctx, "once", time.Hour, nothing, holdfast.MinHold(time.Hour)); err != nil {
			t.Error(err)
		}
		lease, err := c.Lock(ctx, "n", holdfast.NoRenew(), holdfast.MinHold(time.Hour), holdfast.MaxHold(2*time.Hour), holdfast.Wait(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay / 2)
		if err := lease.Renew(ctx); err != nil {
			t.Error(err)
		}
		if left := time.Until(lease.Deadline()); left > delay {
			t.Errorf("%v left", left)
		}
		lease.Unlock(ctx)
		long := holdfast.TTL(delay + 1)
		_, all := c.LockAll(ctx, []string{"x", "y"}, long)
		_, try := c.TryLock(ctx, "x", long)
		for i, err := range []error{all, try, c.Campaign(ctx, "x", nothing, long), c.Do(ctx, "x", nothing, long), c.Once(ctx, "x", time.Hour, nothing, long)} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%d: %v, want ErrInvalid", i, err)
			}
		}
	})
}

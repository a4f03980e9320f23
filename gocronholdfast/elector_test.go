package gocronholdfast_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/gocronholdfast"
	"github.com/holdfast-lock/holdfast/memstore"
)

// campaign runs the campaign of an elector. Resign ends it and waits for it.
func campaign(t *testing.T, e *gocronholdfast.Elector) (resign func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.Campaign(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("campaign: %v", err)
		}
	}()
	resign = func() {
		cancel()
		<-done
	}
	t.Cleanup(resign)
	synctest.Wait()
	return resign
}

func TestOnlyTheLeaderRunsJobs(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *memstore.Store) {
		var all runs
		var resign []func()
		for _, host := range []string{"a", "b"} {
			elector := gocronholdfast.NewElector(newClient(t, s), "scheduler")
			resign = append(resign, campaign(t, elector))
			start(t, gocron.WithDistributedElector(elector), 0, func() { all.add(host) })
		}
		time.Sleep(time.Minute - time.Second)
		for _, leader := range []string{"a", "a", "b", "b"} {
			if leader == "b" {
				resign[0]()
			}
			time.Sleep(time.Minute)
			if hosts := all.take(); !slices.Equal(hosts, []string{leader}) {
				t.Errorf("a tick was run on %q, want %s", hosts, leader)
			}
		}
	})
}

func TestALostLeadershipEndsTheJob(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *memstore.Store) {
		c := newClient(t, s)
		elector := gocronholdfast.NewElector(c, "scheduler")
		if err := elector.IsLeader(t.Context()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("before the campaign: %v, want ErrNotHeld", err)
		}
		if ctx, cancel := elector.Context(t.Context()); !errors.Is(context.Cause(ctx), holdfast.ErrNotHeld) {
			t.Errorf("before the campaign, the context ended with %v, want ErrNotHeld", context.Cause(ctx))
		} else {
			cancel()
		}
		campaign(t, elector)
		var token int64
		var cause error
		start(t, gocron.WithDistributedElector(elector), 0, func(ctx context.Context) {
			ctx, cancel := elector.Context(ctx)
			defer cancel()
			token = holdfast.TokenFrom(ctx)
			<-ctx.Done()
			cause = context.Cause(ctx)
		})
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		leader, err := c.Leader(t.Context(), "scheduler")
		must(t, err)
		if token == 0 || token != leader.Token {
			t.Errorf("token %d, want %d", token, leader.Token)
		}
		must(t, c.Break(t.Context(), "scheduler", leader.ID))
		other, err := newClient(t, s).TryLock(t.Context(), "scheduler")
		must(t, err)
		time.Sleep(15 * time.Second) // until the next renewal
		synctest.Wait()
		if !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the context of the job ended with %v, want ErrLost", cause)
		}
		if err := elector.IsLeader(t.Context()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("after the loss: %v, want ErrNotHeld", err)
		}
		must(t, other.Unlock(t.Context()))
		synctest.Wait()
		if err := elector.IsLeader(t.Context()); err != nil {
			t.Errorf("the campaign does not go on: %v", err)
		}
	})
}

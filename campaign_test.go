package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestOneCandidateLeadsAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		ctx, stop := context.WithCancel(t.Context())
		var (
			wg      sync.WaitGroup
			leading int
			led     = map[int]int{}
			mu      sync.Mutex
		)
		for i := range 3 {
			c := newClient(t, s)
			wg.Go(func() {
				for ctx.Err() == nil {
					c.Campaign(ctx, "scheduler", func(ctx context.Context) error {
						mu.Lock()
						if leading++; leading != 1 {
							t.Errorf("%d leaders", leading)
						}
						led[i]++
						mu.Unlock()
						sleepOr(ctx, time.Second)
						mu.Lock()
						leading--
						mu.Unlock()
						return nil
					})
				}
			})
		}
		time.Sleep(30 * time.Second)
		stop()
		wg.Wait()
		for i := range 3 {
			if led[i] < 9 {
				t.Errorf("candidates led %v times, want all about equally often", led)
			}
		}
	})
}

func sleepOr(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func TestCampaignResignsWhenItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		over := make(chan error)
		go func() {
			over <- a.Campaign(ctx, "n", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second) // stops slowly, still the leader
				_, err := b.TryLock(context.Background(), "n")
				want(t, err, holdfast.ErrHeld)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		stop := errors.New("shutting down")
		cancel(stop)
		want(t, <-over, stop)
		free(t, b, "n")
	})
}

func TestCampaignReturnsTheErrorOfLead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		boom := errors.New("boom")
		for _, result := range []error{boom, nil} {
			if err := a.Campaign(t.Context(), "n", func(context.Context) error { return result }); err != result {
				t.Errorf("Campaign: %v, want %v", err, result)
			}
			free(t, b, "n")
		}
	})
}

func TestCampaignStartsOverAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		var seen recorder
		c := newClient(t, p, holdfast.WithObserver(seen.observe))
		terms := 0
		p.renew = failRenew
		inside := 0
		err := c.Campaign(t.Context(), "n", func(ctx context.Context) error {
			terms++
			if inside++; inside > 1 {
				t.Error("a second term began before the first had ended")
			}
			defer func() { inside-- }()
			if terms == 1 {
				<-ctx.Done()
				want(t, context.Cause(ctx), holdfast.ErrLost)
				time.Sleep(time.Minute) // slow to notice
				return errors.New("does not count: it was no longer the leader")
			}
			return nil
		})
		if err != nil || terms != 2 {
			t.Errorf("%v after %d terms", err, terms)
		}
		if got := seen.kinds(holdfast.EventAcquired, holdfast.EventLost, holdfast.EventReleased); got != "acquired, lost, acquired, released" {
			t.Errorf("the observer saw %s", got)
		}
	})
}

func TestCampaignReturnsTheCauseOfItsContextAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.renew = failRenew
		c := newClient(t, p)
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("shutting down")
		err := c.Campaign(ctx, "n", func(ctx context.Context) error {
			<-ctx.Done()
			cancel(stop)
			return context.Cause(ctx)
		})
		want(t, err, stop)
		if errors.Is(err, holdfast.ErrLost) {
			t.Errorf("%v, want no word of a loss after which Campaign would have gone on", err)
		}
	})
}

func TestCampaignSurvivesAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = failAcquire
		c := newClient(t, p)
		time.AfterFunc(time.Hour, func() { p.set(func() { p.acquire = nil }) })
		start := newClock()
		if err := c.Campaign(t.Context(), "n", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		start.wantWithin(t, time.Hour, time.Hour+5*time.Second)
	})
}

func TestCampaignStopsAtPermanentErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		lead := func(context.Context) error { return nil }
		want(t, c.Campaign(t.Context(), "", lead), holdfast.ErrInvalid)
		want(t, c.Campaign(t.Context(), "n", lead, holdfast.Require(store.FeatureHosts)), holdfast.ErrUnsupported)
		c.Close()
		want(t, c.Campaign(t.Context(), "n", lead), holdfast.ErrClosed)
	})
}

func TestLeaderReturnsTheCurrentLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		_, err := b.Leader(t.Context(), "n")
		want(t, err, holdfast.ErrNotHeld)
		a.Campaign(t.Context(), "n", func(ctx context.Context) error {
			leader, err := b.Leader(t.Context(), "n")
			if err != nil || leader.Owner != "alice" || leader.Token != holdfast.TokenFrom(ctx) {
				t.Errorf("leader %+v, %v", leader, err)
			}
			return nil
		})
	})
}

func TestLeadersYieldsEveryChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b, watcher := newClient(t, s, holdfast.WithOwner("alice")), newClient(t, s, holdfast.WithOwner("bob")), newClient(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		changes := make(chan string, 10)
		go func() {
			for leader, err := range watcher.Leaders(ctx, "n") {
				if errors.Is(err, holdfast.ErrNotHeld) {
					changes <- "nobody"
				} else {
					changes <- leader.Owner
				}
			}
			close(changes)
		}()
		for _, c := range []*holdfast.Client{a, b} {
			time.Sleep(5 * time.Second)
			c.Campaign(ctx, "n", func(context.Context) error {
				time.Sleep(5 * time.Second)
				return nil
			})
		}
		time.Sleep(5 * time.Second)
		cancel()
		var seen []string
		for change := range changes {
			seen = append(seen, change)
		}
		if got := fmt.Sprint(seen); got != "[nobody alice nobody bob nobody]" {
			t.Errorf("saw %s", got)
		}
	})
}

func TestNameInMinHoldHasNoLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t)
		a.Campaign(t.Context(), "n", func(context.Context) error { return nil }, holdfast.MinHold(time.Hour))
		h, err := a.Leader(t.Context(), "n")
		if err == nil {
			t.Errorf("leader is %s, state %v", h.Owner, h.State)
		}
	})
}

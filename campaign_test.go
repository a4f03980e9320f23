package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func TestCampaign(t *testing.T) {
	scenarios{
		"one candidate leads at a time": func(w *world) {
			ctx, stop := context.WithCancel(w.Context())
			leading, led := 0, [3]int{}
			var wg sync.WaitGroup
			for i, c := range []*holdfast.Client{w.c, w.other, w.client()} {
				wg.Go(func() {
					for ctx.Err() == nil {
						c.Campaign(ctx, "n", func(ctx context.Context) error {
							if leading++; leading != 1 {
								w.Errorf("%d leaders", leading)
							}
							led[i]++
							time.Sleep(time.Second)
							leading--
							return nil
						})
					}
				})
			}
			time.Sleep(30 * time.Second)
			stop()
			wg.Wait()
			if slices.Min(led[:]) < 9 {
				w.Errorf("candidates led %v times, want all about equally often", led)
			}
		},
		"it resigns when its context ends": func(w *world) {
			ctx, cancel := context.WithCancelCause(w.Context())
			over := make(chan error)
			go func() {
				over <- w.c.Campaign(ctx, "n", func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(time.Second) // stops slowly, still the leader
					want(w, w.try(w.other), holdfast.ErrHeld)
					return ctx.Err()
				})
			}()
			synctest.Wait()
			cancel(errNet)
			want(w, <-over, errNet)
			w.free("n")
		},
		"it returns the error of lead": func(w *world) {
			for _, result := range []error{errNet, nil} {
				equal(w, "error of Campaign", w.c.Campaign(w.Context(), "n", func(context.Context) error { return result }), result)
				w.free("n")
			}
		},
		"it starts over after a loss": func(w *world) {
			c, seen := w.observed()
			w.p.renew.set(failRenew)
			terms, inside := 0, 0
			must(w, c.Campaign(w.Context(), "n", func(ctx context.Context) error {
				terms++
				if inside++; inside > 1 {
					w.Error("a second term began before the first had ended")
				}
				defer func() { inside-- }()
				if terms == 1 {
					<-ctx.Done()
					want(w, context.Cause(ctx), holdfast.ErrLost, errNet)
					time.Sleep(time.Minute) // slow to notice
					return errors.New("does not count: it was no longer the leader")
				}
				return nil
			}))
			equal(w, "terms", terms, 2)
			equal(w, "events", seen.kinds(holdfast.EventAcquired, holdfast.EventLost, holdfast.EventReleased), "acquired, lost, acquired, released")
		},
		"it returns the cause of its context after a loss": func(w *world) {
			w.p.renew.set(failRenew)
			ctx, cancel := context.WithCancelCause(w.Context())
			stop := errors.New("shutting down")
			err := w.c.Campaign(ctx, "n", func(ctx context.Context) error {
				<-ctx.Done()
				cancel(stop)
				return context.Cause(ctx)
			})
			want(w, err, stop)
			wantNone(w, err, holdfast.ErrLost)
		},
		"it survives an outage, and stops at permanent errors": func(w *world) {
			w.p.acquire.set(failAcquire)
			time.AfterFunc(time.Hour, w.p.acquire.reset)
			must(w, w.c.Campaign(w.Context(), "n", nothing))
			w.within(time.Hour, time.Hour+5*time.Second)
			want(w, w.c.Campaign(w.Context(), "", nothing), holdfast.ErrInvalid)
			want(w, w.c.Campaign(w.Context(), "n", nothing, holdfast.Require(store.FeatureHosts)), holdfast.ErrUnsupported)
			w.c.Close()
			want(w, w.c.Campaign(w.Context(), "n", nothing), holdfast.ErrClosed)
		},
		"Leader returns the current leader": func(w *world) {
			_, err := w.other.Leader(w.Context(), "n")
			want(w, err, holdfast.ErrNotHeld)
			must(w, w.c.Campaign(w.Context(), "n", func(ctx context.Context) error {
				leader, err := w.other.Leader(w.Context(), "n")
				if err != nil || leader.Owner != "alice" || leader.Token != holdfast.TokenFrom(ctx) {
					w.Errorf("leader %+v, %v", leader, err)
				}
				return nil
			}, holdfast.MinHold(time.Hour)))
			want(w, errOf(w.other.Leader(w.Context(), "n")), holdfast.ErrNotHeld)
		},
		"Leaders yields every change": func(w *world) {
			ctx, cancel := context.WithCancel(w.Context())
			changes := make(chan string, 10)
			go func() {
				for leader, err := range w.client().Leaders(ctx, "n") {
					if errors.Is(err, holdfast.ErrNotHeld) {
						changes <- "nobody"
					} else {
						changes <- leader.Owner
					}
				}
				close(changes)
			}()
			for _, c := range []*holdfast.Client{w.c, w.other} {
				time.Sleep(5 * time.Second)
				c.Campaign(ctx, "n", func(context.Context) error { time.Sleep(5 * time.Second); return nil })
			}
			time.Sleep(5 * time.Second)
			cancel()
			for _, who := range []string{"nobody", "alice", "nobody", "bob", "nobody", ""} {
				equal(w, "leader", <-changes, who)
			}
		},
	}.run(t)
}

// Released modules cannot require a store in a folder beside them, so the tests of those for
// schedulers on real stores are here.
package stores_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/robfig/cron/v3"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cronholdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/stores"
	"github.com/holdfast-lock/holdfast/gocronholdfast"
	_ "github.com/holdfast-lock/holdfast/pgstore"
	_ "github.com/holdfast-lock/holdfast/redisstore"
	_ "github.com/holdfast-lock/holdfast/sqlitestore"
)

// patience is how long a test waits for what must happen. Only a failed test waits that long.
const patience = time.Minute

func open(t *testing.T, url string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHostsWithGocronRunATickOnce(t *testing.T) {
	stores.ForEach(t, func(t *testing.T, url string) {
		outcome := make(chan error, 10) // of each host: nil if it ran the job
		clients := []*holdfast.Client{open(t, url), open(t, url), open(t, url)}
		due := time.Now().Add(2 * time.Second)
		for i, c := range clients {
			locker, err := gocronholdfast.NewLocker(c, patience)
			if err != nil {
				t.Fatal(err)
			}
			s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Shutdown() })
			late := due.Add(time.Duration(i) * 150 * time.Millisecond) // clocks differ
			_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(late)),
				gocron.NewTask(func(ctx context.Context) { outcome <- locker.Context(ctx, "report").Err() }),
				gocron.WithName("report"),
				gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { outcome <- err })))
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
		}
		ran := 0
		for range 3 {
			select {
			case err := <-outcome:
				if err == nil {
					ran++
				} else if !errors.Is(err, holdfast.ErrHeld) {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Fatal("a host did not try")
			}
		}
		if ran != 1 {
			t.Errorf("%d hosts ran the job, want 1", ran)
		}
	})
}

func TestHostsWithGocronElectALeader(t *testing.T) {
	stores.ForEach(t, func(t *testing.T, url string) {
		var electors []*gocronholdfast.Elector
		var resign []func()
		for range 2 {
			elector := gocronholdfast.NewElector(open(t, url), "scheduler")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- elector.Campaign(ctx) }()
			electors, resign = append(electors, elector), append(resign, func() {
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		leader := func() int {
			for begin := time.Now(); time.Since(begin) < patience; time.Sleep(time.Millisecond) {
				for i, e := range electors {
					if e.IsLeader(t.Context()) == nil {
						if electors[1-i].IsLeader(t.Context()) == nil {
							t.Error("two leaders")
						}
						return i
					}
				}
			}
			t.Fatal("no leader")
			return 0
		}
		first := leader()
		resign[first]()
		if second := leader(); second == first {
			t.Error("the first host still leads")
		}
		resign[1-first]()
	})
}

func TestHostsWithCronRunEachTickOnce(t *testing.T) {
	stores.ForEach(t, func(t *testing.T, url string) {
		ctx, cancel := context.WithCancel(t.Context())
		ticks := make(chan time.Time, 100)
		var hosts []*cron.Cron
		for range 3 {
			cr := cron.New(cron.WithSeconds(), cron.WithLocation(time.UTC))
			jobs := cronholdfast.New(ctx, cr, open(t, url), cron.DiscardLogger)
			_, err := jobs.AddFunc("* * * * * *", "report", func(_ context.Context, tick time.Time) error {
				ticks <- tick
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, cr)
			cr.Start()
		}
		seen := make(map[time.Time]bool)
		note := func(tick time.Time) {
			if seen[tick] {
				t.Errorf("the tick at %v was run twice", tick)
			}
			seen[tick] = true
		}
		for range 4 {
			select {
			case tick := <-ticks:
				note(tick)
			case <-time.After(patience):
				t.Fatal("no host runs the job")
			}
		}
		for _, cr := range hosts {
			<-cr.Stop().Done() // a host that is late gets its turn
		}
		cancel()
		close(ticks)
		for tick := range ticks {
			note(tick)
		}
	})
}

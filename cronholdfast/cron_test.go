package cronholdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cronholdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A journal records what happens on all hosts.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// want compares the lines since the last call, in any order.
func (j *journal) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.Sort(j.lines)
	slices.Sort(lines)
	if !slices.Equal(j.lines, lines) {
		t.Errorf("got %q, want %q", j.lines, lines)
	}
	j.lines = nil
}

// A logger records errors, and runs hook for each message.
type logger struct {
	*journal
	hook func(msg string)
}

func (l logger) Info(msg string, _ ...any) { l.hook(msg) }

func (l logger) Error(err error, _ string, keysAndValues ...any) {
	l.add("error: %v %v", keysAndValues[1], err)
}

// A host is a process with a cron.
type host struct {
	*cron.Cron
	jobs    *cronholdfast.Jobs
	client  *holdfast.Client
	cancel  context.CancelFunc // of the context of jobs
	journal *journal
}

// newHost returns a host whose clock is late by some time, or the same for all hosts in a test.
func newHost(t *testing.T, s store.Store, j *journal, late time.Duration, opts ...cron.Option) *host {
	t.Helper()
	c := suites.Client(t, s, holdfast.WithTTL(5*time.Second))
	clock := func(job cron.Job) cron.Job { // all hosts have one clock in a test, so the tick is started late
		return cron.FuncJob(func() {
			time.Sleep(late)
			job.Run()
		})
	}
	cr := cron.New(append([]cron.Option{cron.WithLocation(time.UTC), cron.WithLogger(cron.DiscardLogger), cron.WithChain(clock)}, opts...)...)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		<-cr.Stop().Done()
	})
	return &host{cr, cronholdfast.New(ctx, cr, c, logger{j, func(string) {}}), c, cancel, j}
}

// add adds a job that records its ticks, and starts the host.
func (h *host) add(t *testing.T, spec string, fn func(ctx context.Context) error) {
	t.Helper()
	_, err := h.jobs.AddFunc(spec, "report", func(ctx context.Context, tick time.Time) error {
		h.journal.add("tick %s", tick.Format("15:04"))
		return fn(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Start()
}

func succeed(context.Context) error { return nil }

// onHosts runs a test in fake time, which begins at midnight, UTC.
func onHosts(t *testing.T, do func(t *testing.T, s *memstore.Store, j *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		defer s.Close()
		do(t, s, new(journal))
	})
}

func TestEachTickIsRunOnOneHostHoweverMuchClocksDiffer(t *testing.T) {
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		for _, late := range []time.Duration{0, 300 * time.Millisecond, 40 * time.Second, 58 * time.Minute} {
			newHost(t, s, j, late).add(t, "0 * * * *", succeed)
		}
		time.Sleep(time.Hour - time.Second)
		for hour := range 5 {
			time.Sleep(time.Hour)
			j.want(t, fmt.Sprintf("tick %02d:00", hour+1))
		}
	})
}

// The host with a clock that is behind by more than the interval may still ask for an old tick.
func TestATickIsRememberedForAnHourAfterTheNextOne(t *testing.T) {
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		h := newHost(t, s, j, 0)
		h.add(t, "* * * * *", succeed)
		time.Sleep(90 * time.Second)
		j.want(t, "tick 00:01")
		info, err := h.client.Inspect(t.Context(), "report:2000-01-01T00:01:00Z")
		if err != nil {
			t.Fatal(err)
		}
		if left := info.Holders[0].Left; info.Holders[0].State != store.Done || left != time.Hour+30*time.Second {
			t.Errorf("%+v, want that it is done for another 1h0m30s", info.Holders[0])
		}
	})
}

func TestAnotherHostTakesOverAFailedTick(t *testing.T) {
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		newHost(t, s, j, 0).add(t, "0 * * * *", func(context.Context) error {
			time.Sleep(time.Minute)
			return fmt.Errorf("order:42: %w", holdfast.ErrHeld) // of another lock
		})
		newHost(t, s, j, time.Second).add(t, "0 * * * *", succeed)
		time.Sleep(time.Hour + 59*time.Second)
		j.want(t, "tick 01:00")
		time.Sleep(2 * time.Second)
		j.want(t, "error: report order:42: held", "tick 01:00")
	})
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		recovering := cron.WithChain(cron.Recover(logger{&journal{}, func(string) {}}))
		newHost(t, s, j, 0, cron.WithChain(), recovering).add(t, "0 * * * *", func(context.Context) error { panic("nil map") })
		newHost(t, s, j, time.Second).add(t, "0 * * * *", succeed)
		time.Sleep(time.Hour + time.Minute)
		j.want(t, "tick 01:00", "tick 01:00")
	})
}

// A cut store does not answer renewals while it is cut off.
type cut struct {
	*memstore.Store
	off atomic.Bool
}

func (c *cut) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if c.off.Load() {
		return nil, errors.New("connection reset")
	}
	return c.Store.Renew(ctx, grants)
}

func TestAnotherHostTakesOverFromAHostThatIsCutOff(t *testing.T) {
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		first := &cut{Store: s}
		newHost(t, first, j, 0).add(t, "0 * * * *", func(ctx context.Context) error {
			if holdfast.TokenFrom(ctx) == 0 {
				t.Error("the context has no token")
			}
			<-ctx.Done()
			if err := context.Cause(ctx); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("cause %v, want ErrLost", err)
			}
			j.add("lost")
			return nil
		})
		newHost(t, s, j, time.Second).add(t, "0 * * * *", succeed)
		time.Sleep(time.Hour + 30*time.Minute)
		j.want(t, "tick 01:00") // renewed for half an hour
		first.off.Store(true)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		j.mu.Lock()
		lines := strings.Join(j.lines, "\n")
		j.mu.Unlock()
		if !strings.HasPrefix(lines, "lost\n") || !strings.Contains(lines, "\ntick 01:00") || !strings.Contains(lines, "\nerror: report holdfast: once") {
			t.Errorf("got %s", lines)
		}
	})
}

func TestHostsThatCountFromTheirStartShareAnInterval(t *testing.T) {
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		for range 3 {
			time.Sleep(70 * time.Second)
			newHost(t, s, j, 0).add(t, "@every 5m", succeed)
		}
		time.Sleep(10*time.Minute - time.Since(time.Now().Truncate(10*time.Minute)))
		j.want(t, "tick 00:05")
		for range 3 {
			time.Sleep(5 * time.Minute)
			j.want(t, "tick "+time.Now().Add(-5*time.Minute).UTC().Format("15:04"))
		}
	})
}

// A suspended host wakes up long after a tick, when the store has forgotten that it is done.
func TestAHostThatWasSuspendedDoesNotRepeatAnOldTick(t *testing.T) {
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		var asleep atomic.Bool
		suspended := cron.WithLogger(logger{j, func(msg string) {
			if msg == "run" && !asleep.Swap(true) { // cron has started the job, and hangs
				time.Sleep(27 * time.Hour)
			}
		}})
		newHost(t, s, j, 0, suspended).add(t, "0 2 * * *", succeed)
		newHost(t, s, j, 0).add(t, "0 2 * * *", succeed)
		time.Sleep(28 * time.Hour)
		j.want(t, "tick 02:00", "tick 02:00")
		time.Sleep(2 * time.Hour) // 27 hours after the first tick, three hours after the second
		j.want(t)
	})
}

func TestTheEndOfTheContextEndsTheWaitForAnotherHost(t *testing.T) {
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		release := make(chan struct{})
		newHost(t, s, j, 0).add(t, "0 * * * *", func(context.Context) error { <-release; return nil })
		waiting := newHost(t, s, j, time.Second)
		waiting.add(t, "0 * * * *", succeed)
		time.Sleep(time.Hour + time.Minute)
		stopped := waiting.Stop()
		synctest.Wait()
		if stopped.Err() != nil {
			t.Fatal("the second host does not wait")
		}
		waiting.cancel()
		synctest.Wait()
		if stopped.Err() == nil {
			t.Error("the second host still waits")
		}
		close(release)
		j.want(t, "tick 01:00")
	})
}

func TestWithoutWaitOtherHostsSkipATickThatRuns(t *testing.T) {
	onHosts(t, func(t *testing.T, s *memstore.Store, j *journal) {
		for range 2 {
			h := newHost(t, s, j, 0)
			_, err := h.jobs.AddFunc("0 * * * *", "report", func(context.Context, time.Time) error {
				j.add("run")
				time.Sleep(time.Minute)
				return errors.New("disk full")
			}, holdfast.Wait(0))
			if err != nil {
				t.Fatal(err)
			}
			h.Start()
		}
		time.Sleep(time.Hour + 10*time.Minute)
		j.want(t, "run", "error: report disk full")
	})
}

func TestBadArgumentsOfAddFuncAreRefused(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	h := newHost(t, s, &journal{}, 0)
	fn := func(context.Context, time.Time) error { return nil }
	if _, err := h.jobs.AddFunc("often", "report", fn); err == nil {
		t.Error("a bad spec is accepted")
	}
	if _, err := h.jobs.AddFunc("0 * * * *", "report", nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("nil function: %v, want ErrInvalid", err)
	}
	for _, name := range []string{"", "a\nb", strings.Repeat("a", store.MaxName)} {
		if _, err := h.jobs.AddFunc("0 * * * *", name, fn); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("name %.20q: %v, want ErrInvalid", name, err)
		}
	}
	if n := len(h.Entries()); n != 0 {
		t.Errorf("%d jobs were added", n)
	}
}

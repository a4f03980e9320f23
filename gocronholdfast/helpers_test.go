package gocronholdfast_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/gocronholdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
)

// A runs records the starts of a job on all hosts.
type runs struct {
	mu    sync.Mutex
	hosts []string
}

func (r *runs) add(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts = append(r.hosts, host)
}

// take returns the hosts that have started the job since the last call.
func (r *runs) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	hosts := r.hosts
	r.hosts = nil
	return hosts
}

// inFakeTime runs a test with a store that all hosts use.
func inFakeTime(t *testing.T, do func(t *testing.T, s *memstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		defer s.Close()
		do(t, s)
	})
}

var newClient = suites.Client

func newLocker(t *testing.T, c *holdfast.Client, splay time.Duration, opts ...holdfast.CallOption) *gocronholdfast.Locker {
	t.Helper()
	l, err := gocronholdfast.NewLocker(c, splay, opts...)
	must(t, err)
	return l
}

// start starts a scheduler with one job that is due every minute, first after the time late from
// the next full minute on. All hosts have the same clock in a test, so late stands for a clock that
// is behind.
func start(t *testing.T, option gocron.SchedulerOption, late time.Duration, task any, opts ...gocron.JobOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(option)
	must(t, err)
	t.Cleanup(func() { s.Shutdown() })
	first := time.Now().Truncate(time.Minute).Add(time.Minute + late)
	opts = append([]gocron.JobOption{gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(first))}, opts...)
	if _, err := s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(task), opts...); err != nil {
		t.Fatal(err)
	}
	s.Start()
	return s
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A call has a name, and records how it was sent.
type call struct {
	name string
	how  string // "alone" or "together"
}

// A server blocks every request until the test lets it continue.
type server struct {
	Batcher[call]
	mu      sync.Mutex
	batches [][]string
	late    []string
	gate    chan struct{}
	refuses bool
}

func newServer(flying, size int) *server {
	s := &server{gate: make(chan struct{})}
	s.MaxInFlight, s.MaxBatch = flying, size
	s.Send = func(calls []*call) (refused bool) {
		var names []string
		for _, c := range calls {
			names = append(names, c.name)
		}
		s.mu.Lock()
		s.batches = append(s.batches, names)
		s.mu.Unlock()
		<-s.gate
		for _, c := range calls {
			c.how = "together"
		}
		return s.refuses
	}
	return s
}

func (s *server) do(ctx context.Context, name string) <-chan result {
	done := make(chan result, 1)
	go func() {
		c := &call{name: name}
		late, err := s.Do(ctx, c, func() {
			<-s.gate
			c.how = "alone"
		})
		if late != nil {
			done <- result{"", err}
			<-late
			s.late = append(s.late, c.name+" "+c.how)
			return
		}
		done <- result{c.how, err}
	}()
	synctest.Wait()
	return done
}

type result struct {
	how string
	err error
}

func (s *server) want(t *testing.T, batches ...[]string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.EqualFunc(s.batches, batches, slices.Equal) {
		t.Fatalf("batches %q, want %q", s.batches, batches)
	}
}

func (s *server) goOn(t *testing.T, all ...<-chan result) (how []string) {
	t.Helper()
	close(s.gate)
	for _, c := range all {
		r := <-c
		if r.err != nil {
			t.Fatal(r.err)
		}
		how = append(how, r.how)
	}
	return how
}

func TestFirstCallsAreSentAloneAndTheRestInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(2, 10)
		var all []<-chan result
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, s.do(t.Context(), name))
		}
		s.want(t)
		s.gate <- struct{}{}
		s.want(t, []string{"c", "d", "e"})
		all = append(all, s.do(t.Context(), "f"))
		if got := s.goOn(t, all...); !slices.Equal(got, []string{"alone", "alone", "together", "together", "together", "together"}) {
			t.Error(got)
		}
		s.want(t, []string{"c", "d", "e"}, []string{"f"})
		if r := <-s.do(t.Context(), "z"); r.how != "alone" {
			t.Errorf("without requests in flight a call is sent %s", r.how)
		}
	})
}

func TestTheCallsOfARefusedBatchAreSentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, 10)
		s.refuses = true
		ctx, cancel := context.WithCancel(t.Context())
		first, left := s.do(t.Context(), "a"), s.do(ctx, "b")
		all := []<-chan result{first, s.do(t.Context(), "c"), s.do(t.Context(), "d")}
		s.gate <- struct{}{}
		s.want(t, []string{"b", "c", "d"})
		cancel()
		if r := <-left; !errors.Is(r.err, context.Canceled) {
			t.Errorf("a caller that gave up: %v", r.err)
		}
		if got := s.goOn(t, all...); !slices.Equal(got, []string{"alone", "alone", "alone"}) {
			t.Error(got)
		}
		synctest.Wait()
		if !slices.Equal(s.late, []string{"b together"}) { // that is, not sent alone
			t.Errorf("late: %q", s.late)
		}
	})
}

func TestCallsWithTheSameNameAreNotInOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, 3)
		s.Name = func(c *call) string { return c.name }
		var all []<-chan result
		for _, name := range []string{"x", "a", "b", "a", "c", "d", "a"} {
			all = append(all, s.do(t.Context(), name))
		}
		s.goOn(t, all...)
		s.want(t, []string{"a", "b", "c"}, []string{"a", "d"}, []string{"a"})
	})
}

func TestQueuedCallsDoNotWaitForASlowReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, 10)
		s.MaxWait = time.Millisecond
		all := []<-chan result{s.do(t.Context(), "a"), s.do(t.Context(), "b"), s.do(t.Context(), "c")}
		s.want(t) // too early after the first request
		time.Sleep(time.Millisecond)
		s.want(t, []string{"b", "c"})
		all = append(all, s.do(t.Context(), "d"))
		time.Sleep(time.Millisecond)
		s.want(t, []string{"b", "c"}) // with two requests in flight the pause is twice as long
		all = append(all, s.do(t.Context(), "e"))
		time.Sleep(time.Millisecond)
		s.want(t, []string{"b", "c"}, []string{"d", "e"})
		s.goOn(t, all...)
		s.Close()
	})
}

func TestLongQueueIsSentInSeveralBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, 2)
		s.MaxWait = time.Millisecond
		var all []<-chan result
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, s.do(t.Context(), name))
		}
		time.Sleep(time.Second)
		s.want(t, []string{"b", "c"}, []string{"d", "e"})
		s.goOn(t, all...)
	})
}

func TestCancelledCallIsNotSentOrIsReportedAsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, 10)
		first := s.do(t.Context(), "first")
		early, cancelEarly := context.WithCancel(t.Context())
		late, cancelLate := context.WithCancel(t.Context())
		a, b, c := s.do(early, "early"), s.do(late, "late"), s.do(t.Context(), "stays")
		cancelEarly()
		if r := <-a; !errors.Is(r.err, context.Canceled) {
			t.Errorf("cancelled call: %+v", r)
		}
		s.gate <- struct{}{}
		s.want(t, []string{"late", "stays"})
		cancelLate()
		if r := <-b; !errors.Is(r.err, context.Canceled) {
			t.Errorf("cancelled call: %+v", r)
		}
		s.goOn(t, first, c)
		s.Close()
		synctest.Wait()
		if !slices.Equal(s.late, []string{"late together"}) {
			t.Errorf("late calls: %q", s.late)
		}
	})
}

func TestQueuedCallEndsAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, 10)
		s.Timeout = time.Second
		begin := time.Now()
		first := s.do(t.Context(), "first")
		queued := s.do(t.Context(), "queued")
		if r := <-queued; !errors.Is(r.err, context.DeadlineExceeded) || time.Since(begin) != s.Timeout {
			t.Errorf("queued call: %+v after %v", r, time.Since(begin))
		}
		s.goOn(t, first)
		s.want(t) // the queued call is never sent
	})
}

func TestCloseWaitsForBatchesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, 10)
		ctx, cancel := context.WithCancel(t.Context())
		first := s.do(t.Context(), "a")
		second := s.do(ctx, "b")
		s.gate <- struct{}{}
		s.want(t, []string{"b"})
		cancel()
		<-second
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed with a call on its way")
		default:
		}
		s.goOn(t, first)
		<-closed
		if r := <-s.do(t.Context(), "z"); r.how != "alone" {
			t.Errorf("after Close a call is sent %s", r.how)
		}
	})
}

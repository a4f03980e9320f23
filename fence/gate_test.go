package fence_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
)

// calls are the three ways to pass a token to a gate. All of them must behave in the same way.
var calls = map[string]func(g *fence.Gate, token int64) error{
	"Check": (*fence.Gate).Check,
	"Raise": (*fence.Gate).Raise,
	"Do": func(g *fence.Gate, token int64) error {
		return g.Do(token, func() error { return nil })
	},
}

func eachCall(t *testing.T, test func(t *testing.T, call func(g *fence.Gate, token int64) error)) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, call) })
		})
	}
}

func TestAGateAdmitsTheHighestTokenOnly(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(g *fence.Gate, token int64) error) {
		var g fence.Gate
		for _, c := range []struct {
			token, highest int64
			want           error
		}{
			{0, 0, holdfast.ErrInvalid},
			{-1, 0, holdfast.ErrInvalid},
			{math.MinInt64, 0, holdfast.ErrInvalid},
			{1 << 53, 0, holdfast.ErrInvalid},
			{math.MaxInt64, 0, holdfast.ErrInvalid},
			{1, 1, nil},
			{1, 1, nil},
			{7, 7, nil},
			{6, 7, fence.ErrStale},
			{7, 7, nil},
			{1<<53 - 1, 1<<53 - 1, nil},
		} {
			err := call(&g, c.token)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("token %d: %v, want %v", c.token, err, c.want)
			}
			if got := g.Highest(); got != c.highest {
				t.Errorf("after token %d the highest is %d, want %d", c.token, got, c.highest)
			}
			var stale *fence.StaleError
			if errors.As(err, &stale) && (stale.Token != c.token || stale.Highest != c.highest || !strings.Contains(err.Error(), "token 6: the resource has seen 7")) {
				t.Errorf("token %d: %+v: %v", c.token, stale, err)
			}
		}
	})
}

// While a newer token waits, older ones are refused. Otherwise a stream of overlapping old writes
// could keep the new holder out forever.
func TestTheNewestTokenWaitsForOlderWork(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(g *fence.Gate, token int64) error) {
		var g fence.Gate
		finishOne, finishTwo := start(t, &g, 1), start(t, &g, 1) // work of one token runs concurrently
		second, third := make(chan error, 1), make(chan error, 1)
		go func() { second <- call(&g, 2) }()
		synctest.Wait()
		wantStale(t, call(&g, 1))
		go func() { third <- call(&g, 3) }()
		finishOne()
		synctest.Wait()
		if len(second)+len(third) > 0 {
			t.Error("a token was answered while work of token 1 ran")
		}
		finishTwo()
		wantStale(t, <-second)
		wantNil(t, <-third)
	})
}

func TestGateIsFreeHoweverWorkEnds(t *testing.T) {
	broken := errors.New("broken")
	for name, end := range map[string]func() error{
		"error":  func() error { return broken },
		"panic":  func() error { panic("broken") },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g fence.Gate
				go func() {
					defer func() { _ = recover() }()
					if err := g.Do(1, func() error { time.Sleep(time.Second); return end() }); err != broken {
						t.Errorf("Do returned %v, want the error of work", err)
					}
				}()
				synctest.Wait()
				wantNil(t, g.Check(2)) // otherwise it deadlocks, which synctest reports
				wantNil(t, g.Do(3, func() error { return nil }))
			})
		})
	}
}

func TestNoStaleWorkLandsInsideOrAfterNewerWork(t *testing.T) {
	const writers, writes = 16, 500
	var (
		g        fence.Gate
		issued   atomic.Int64 // tokens that a lock would have issued
		running  atomic.Int64 // token of the work that runs
		resource int64        // last token that wrote; guarded by the gate alone: one token never writes twice here
		wg       sync.WaitGroup
	)
	for range writers {
		wg.Go(func() {
			for range writes {
				token := issued.Add(1)
				for range rand.IntN(3) { // sometimes sleep until after the end of the lease
					runtime.Gosched()
				}
				err := g.Do(token, func() error {
					if other := running.Swap(token); other != 0 {
						t.Errorf("work of token %d began inside work of token %d", token, other)
					}
					if resource >= token {
						t.Errorf("token %d wrote after token %d", token, resource)
					}
					runtime.Gosched()
					resource = token
					running.Store(0)
					return nil
				})
				if err != nil {
					wantStale(t, err)
				}
			}
		})
	}
	wg.Wait()
	if resource != writers*writes || g.Highest() != writers*writes {
		t.Errorf("last write %d, highest %d, want %d: the newest holder was refused", resource, g.Highest(), writers*writes)
	}
}

func TestEachNameHasOneGate(t *testing.T) {
	var gates fence.Gates
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() { wantNil(t, gates.Gate("a").Check(7)) })
	}
	wg.Wait()
	wantStale(t, gates.Gate("a").Check(6))
	wantNil(t, gates.Gate("b").Check(1))

	gates.Forget("never seen")
	gates.Forget("a")
	wantNil(t, gates.Gate("a").Check(1))
	wantNil(t, gates.Gate("b").Check(2))
	wantStale(t, gates.Gate("b").Check(1))
}

// start runs work under a token until the returned function is called. It must be called
// inside a synctest bubble.
func start(t *testing.T, g *fence.Gate, token int64) (finish func()) {
	t.Helper()
	running := false
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- g.Do(token, func() error {
			running = true
			<-end
			return nil
		})
	}()
	synctest.Wait()
	if !running {
		t.Errorf("work of token %d does not run", token)
	}
	return func() {
		t.Helper()
		close(end)
		wantNil(t, <-ended)
	}
}

// must ends the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func wantStale(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
}

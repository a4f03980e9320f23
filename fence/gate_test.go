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

func TestHighestTokenIsAdmittedAndRemembered(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(g *fence.Gate, token int64) error) {
		var g fence.Gate
		if got := g.Highest(); got != 0 {
			t.Errorf("a new gate has seen %d", got)
		}
		for _, token := range []int64{1, 1, 7, 7, 1<<53 - 1} {
			if err := call(&g, token); err != nil {
				t.Errorf("token %d: %v", token, err)
			}
			if got := g.Highest(); got != token {
				t.Errorf("after token %d the highest is %d", token, got)
			}
		}
	})
}

func TestLowerTokenIsStale(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(g *fence.Gate, token int64) error) {
		var g fence.Gate
		wantNil(t, g.Check(7))
		err := call(&g, 6)
		var stale *fence.StaleError
		if !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) {
			t.Fatalf("token 6 after 7: %v, want ErrStale", err)
		}
		if stale.Token != 6 || stale.Highest != 7 {
			t.Errorf("got %+v", stale)
		}
		for _, word := range []string{"token 6", "seen 7", "is over", "stop", "acquire"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("error %q does not say %q", err, word)
			}
		}
		if got := g.Highest(); got != 7 {
			t.Errorf("the highest fell to %d", got)
		}
	})
}

func TestStaleWorkDoesNotRun(t *testing.T) {
	var g fence.Gate
	wantNil(t, g.Raise(7)) // the new holder has acquired, and has not written yet
	err := g.Do(6, func() error { t.Error("stale work ran"); return nil })
	wantStale(t, err)
}

func TestTokenThatNoGrantCanHaveIsInvalid(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(g *fence.Gate, token int64) error) {
		var g fence.Gate
		for _, token := range []int64{0, -1, math.MinInt64, 1 << 53, math.MaxInt64} {
			if err := call(&g, token); !errors.Is(err, holdfast.ErrInvalid) || errors.Is(err, fence.ErrStale) {
				t.Errorf("token %d: %v, want ErrInvalid", token, err)
			}
		}
		if got := g.Highest(); got != 0 {
			t.Errorf("an invalid token raised the gate to %d", got)
		}
	})
}

func TestErrorOfWorkIsReturned(t *testing.T) {
	var g fence.Gate
	broken := errors.New("broken")
	if err := g.Do(1, func() error { return broken }); err != broken {
		t.Errorf("got %v", err)
	}
}

func TestNewerTokenWaitsForOlderWork(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(g *fence.Gate, token int64) error) {
		var g fence.Gate
		finish := start(t, &g, 1)
		admitted := make(chan error, 1)
		go func() { admitted <- call(&g, 2) }()
		synctest.Wait()
		select {
		case err := <-admitted:
			t.Errorf("token 2 was answered while work of token 1 ran: %v", err)
		default:
		}
		finish()
		wantNil(t, <-admitted)
	})
}

// Otherwise a stream of overlapping old writes could keep the new holder out forever.
func TestOlderTokenIsRefusedAsSoonAsANewerOneWaits(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(g *fence.Gate, token int64) error) {
		var g fence.Gate
		finish := start(t, &g, 1)
		admitted := make(chan error, 1)
		go func() { admitted <- g.Raise(2) }()
		synctest.Wait()
		wantStale(t, call(&g, 1))
		if got := g.Highest(); got != 2 {
			t.Errorf("the highest token seen is %d, want 2", got)
		}
		finish()
		wantNil(t, <-admitted)
	})
}

func TestWaitingTokenIsStaleOnceOvertaken(t *testing.T) {
	eachCall(t, func(t *testing.T, call func(g *fence.Gate, token int64) error) {
		var g fence.Gate
		finish := start(t, &g, 1)
		second, third := make(chan error, 1), make(chan error, 1)
		go func() { second <- call(&g, 2) }()
		synctest.Wait()
		go func() { third <- call(&g, 3) }()
		synctest.Wait()
		finish()
		wantStale(t, <-second)
		wantNil(t, <-third)
	})
}

func TestWorkOfOneTokenRunsConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		finishOne, finishTwo := start(t, &g, 1), start(t, &g, 1)
		newer := make(chan error, 1)
		go func() { newer <- g.Check(2) }()
		finishOne()
		synctest.Wait()
		select {
		case <-newer:
			t.Error("token 2 was admitted while one of two works of token 1 ran")
		default:
		}
		finishTwo()
		wantNil(t, <-newer)
	})
}

func TestGateIsFreeHoweverWorkEnds(t *testing.T) {
	for name, end := range map[string]func() error{
		"error":  func() error { return errors.New("broken") },
		"panic":  func() error { panic("broken") },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g fence.Gate
				go func() {
					defer func() { _ = recover() }()
					_ = g.Do(1, func() error { time.Sleep(time.Second); return end() })
				}()
				synctest.Wait()
				wantNil(t, g.Check(2)) // otherwise it deadlocks, which synctest reports
				wantNil(t, g.Do(3, func() error { return nil }))
			})
		})
	}
}

func TestNoStaleWorkLandsInsideOrAfterNewerWork(t *testing.T) {
	const (
		writers = 16
		writes  = 500
	)
	var (
		g        fence.Gate
		issued   atomic.Int64 // tokens that a lock would have issued
		running  atomic.Int64 // token of the work that runs
		resource int64        // last token that wrote; guarded by the gate alone: one token never writes twice here
		landed   atomic.Int64
		refused  atomic.Int64
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
					if other := running.Swap(0); other != token {
						t.Errorf("work of token %d ran inside work of token %d", other, token)
					}
					return nil
				})
				switch {
				case err == nil:
					landed.Add(1)
				case errors.Is(err, fence.ErrStale):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		var before int64
		for {
			now := g.Highest()
			if now < before {
				t.Errorf("the highest token fell from %d to %d", before, now)
			}
			before = now
			select {
			case <-done:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	wg.Wait()
	close(done)
	watcher.Wait()
	if resource != writers*writes || g.Highest() != writers*writes {
		t.Errorf("last write %d, highest %d, want %d: the newest holder was refused", resource, g.Highest(), writers*writes)
	}
	if landed.Load()+refused.Load() != writers*writes {
		t.Errorf("%d landed and %d refused of %d", landed.Load(), refused.Load(), writers*writes)
	}
	t.Logf("%d landed, %d refused", landed.Load(), refused.Load())
}

func TestGatesKeepResourcesApart(t *testing.T) {
	var gates fence.Gates
	wantNil(t, gates.Gate("a").Check(7))
	wantNil(t, gates.Gate("b").Check(1))
	wantStale(t, gates.Gate("a").Check(6))
}

func TestForgottenGateStartsAgain(t *testing.T) {
	var gates fence.Gates
	gates.Forget("never seen")
	wantNil(t, gates.Gate("a").Check(7))
	wantNil(t, gates.Gate("b").Check(7))
	gates.Forget("a")
	wantNil(t, gates.Gate("a").Check(1))
	wantStale(t, gates.Gate("b").Check(1))
}

func TestGatesMakeOneGateForManyGoroutines(t *testing.T) {
	var gates fence.Gates
	got := make([]*fence.Gate, 32)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = gates.Gate("a") })
	}
	wg.Wait()
	for _, gate := range got {
		if gate != got[0] {
			t.Fatal("one name has two gates")
		}
	}
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

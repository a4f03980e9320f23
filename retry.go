package holdfast

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Strategy decides whether and when a call asks the store again. Next gets the number of attempts
// so far (1 after the first) and the error of the last one: a *HeldError, or an ErrUnavailable. A
// Strategy must have no state, so that one value can serve many calls at once.
type Strategy interface {
	Next(attempt int, err error) (wait time.Duration, again bool)
}

// StrategyFunc is a function that implements Strategy.
type StrategyFunc func(attempt int, err error) (wait time.Duration, again bool)

// Next calls the function.
func (f StrategyFunc) Next(attempt int, err error) (time.Duration, bool) { return f(attempt, err) }

// Every returns a strategy that retries after the same interval, without limit.
func Every(interval time.Duration) Strategy { return every(interval) }

type every time.Duration

func (e every) Next(int, error) (time.Duration, bool) { return time.Duration(e), true }

func (e every) check() error {
	if e <= 0 {
		return fmt.Errorf("%w: Every(%v): want an interval above zero", ErrInvalid, time.Duration(e))
	}
	return nil
}

// Backoff returns a strategy that retries without limit. The first wait is first, and each further
// wait twice as long, up to most, shortened at random by up to a half to spread the clients.
func Backoff(first, most time.Duration) Strategy { return backoff{first, most} }

type backoff struct{ first, most time.Duration }

func (b backoff) Next(attempt int, _ error) (time.Duration, bool) {
	wait := b.most
	if shift := max(0, attempt-1); shift < 62 && b.first <= b.most>>shift {
		wait = b.first << shift
	}
	return wait - rand.N(wait/2+1), true
}

func (b backoff) check() error {
	if b.first <= 0 || b.most < b.first {
		return fmt.Errorf("%w: Backoff(%v, %v): want a first wait above zero and a longest not below it", ErrInvalid, b.first, b.most)
	}
	return nil
}

// MaxAttempts returns a strategy that retries like s, with at most n attempts in total.
func MaxAttempts(n int, s Strategy) Strategy { return maxAttempts{n, s} }

type maxAttempts struct {
	n int
	s Strategy
}

func (a maxAttempts) Next(attempt int, err error) (time.Duration, bool) {
	if attempt >= a.n {
		return 0, false
	}
	return a.s.Next(attempt, err)
}

func (a maxAttempts) check() error {
	if a.n < 1 {
		return fmt.Errorf("%w: MaxAttempts(%d, …): want at least one attempt", ErrInvalid, a.n)
	}
	return checkStrategy(a.s)
}

// checkStrategy returns an ErrInvalid for a strategy that cannot work.
func checkStrategy(s Strategy) error {
	if s == nil {
		return fmt.Errorf("%w: nil retry strategy: leave the option out for the default", ErrInvalid)
	}
	if c, ok := s.(interface{ check() error }); ok {
		return c.check()
	}
	return nil
}

// defaultRetry is for failures of the store: seven attempts, which take about two seconds if they
// fail at once. A server can restart meanwhile, and a wrong address does not look like a long wait.
var defaultRetry = MaxAttempts(7, Backoff(50*time.Millisecond, time.Second))

// leastRetryWait keeps a careless strategy from spinning.
const leastRetryWait = time.Millisecond

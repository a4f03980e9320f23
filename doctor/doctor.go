// Package doctor checks whether a store is safe and fast enough for locks.
//
// Run makes the checks that every store has in common: how long a round trip takes, and a self-test
// on a scratch name, which shows that locks exclude each other, are renewed, wake their waiters,
// expire, and have growing tokens. A store that knows more, such as the settings of its servers,
// implements [store.Diagnoser].
package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	probes  = 50
	testTTL = time.Second // of the self-test, or the store's minimum
	slack   = 2 * time.Second
)

// Run checks a store for locks with that TTL. The checks take about five seconds if the store is
// healthy, and write only under a scratch name, which they leave empty.
func Run(ctx context.Context, s store.Store, ttl time.Duration) []store.Finding {
	findings := []store.Finding{roundTrip(ctx, s, ttl)}
	findings = append(findings, selfTest(ctx, s)...)
	if d, ok := s.(store.Diagnoser); ok {
		findings = append(findings, d.Diagnose(ctx, ttl)...)
	}
	return findings
}

// Worst returns the highest level of findings.
func Worst(findings []store.Finding) store.Level {
	var worst store.Level
	for _, f := range findings {
		worst = max(worst, f.Level)
	}
	return worst
}

// roundTrip compares the time of plain calls with the TTL.
func roundTrip(ctx context.Context, s store.Store, ttl time.Duration) store.Finding {
	f := store.Finding{ID: "store.round-trip"}
	took := make([]time.Duration, 0, probes)
	for range probes {
		begin := time.Now()
		if _, err := s.List(ctx, store.Query{Name: scratch()}); err != nil {
			f.Level, f.Found = store.LevelFailure, fmt.Sprintf("the store does not answer: %v", err)
			f.Risk, f.Remedy = "no lock can be taken", "see whether the server is up and can be reached from here, and whether the account may read"
			return f
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	p50, p99 := took[probes/2], took[probes-1]
	f.Found = fmt.Sprintf("p50 %v, p99 %v of %d calls", p50.Round(time.Microsecond), p99.Round(time.Microsecond), probes)
	if p99 > ttl/10 {
		f.Level = store.LevelWarning
		f.Risk = fmt.Sprintf("a renewal must come back within the TTL of %v; calls that take more than a tenth of it make losses likely", ttl)
		f.Remedy = "use a longer TTL, or find out why the store is slow"
	}
	return f
}

// scratch returns a name that nobody else uses.
func scratch() string { return "holdfast:doctor:" + rand.Text() }

// selfTest takes, contends, renews, hands over and lets expire one scratch name.
func selfTest(ctx context.Context, s store.Store) []store.Finding {
	caps := s.Capabilities()
	ttl := max(testTTL, caps.MinTTL)
	ctx, cancel := context.WithTimeout(ctx, 6*ttl+4*slack)
	defer cancel()
	t := &test{name: scratch(), ttl: ttl}
	if err := t.open(s); err != nil {
		return []store.Finding{failed("store.self-test", err)}
	}
	defer t.close()
	steps := []struct {
		id string
		do func(context.Context) (string, error)
	}{
		{"store.exclusion", t.exclusion},
		{"store.renewal", t.renewal},
		{"store.wake-up", t.wakeUp},
		{"store.expiry", t.expiry},
		{"store.tokens", t.tokens},
		{"store.leftovers", t.leftovers},
	}
	var findings []store.Finding
	for _, step := range steps {
		found, err := step.do(ctx)
		if err != nil {
			return append(findings, failed(step.id, err)) // the following steps build on it
		}
		f := store.Finding{ID: step.id, Found: found}
		if t.late > slack {
			f.Level = store.LevelWarning
			f.Risk, f.Remedy = "waiters wait longer than they must", "see whether the store is overloaded, or whether it cannot push through a proxy or pooler in between"
		}
		t.late = 0
		findings = append(findings, f)
	}
	return findings
}

func failed(id string, err error) store.Finding {
	return store.Finding{
		ID: id, Level: store.LevelFailure, Found: err.Error(),
		Risk:   "locks do not work on this store as it is set up",
		Remedy: "see the package of the store for the rights and settings that it needs",
	}
}

// A test is the self-test: two clients and one name.
type test struct {
	name    string
	ttl     time.Duration
	a, b    *holdfast.Client
	lease   *holdfast.Lease
	highest []int64       // tokens in the order of their grants
	late    time.Duration // of the last step
}

func (t *test) open(s store.Store) (err error) {
	for _, c := range []**holdfast.Client{&t.a, &t.b} {
		if *c, err = holdfast.New(s, holdfast.WithTTL(t.ttl), holdfast.WithOwner("holdfast doctor")); err != nil {
			return err
		}
	}
	return nil
}

func (t *test) close() {
	t.a.Close()
	t.b.Close()
}

// granted notes a grant.
func (t *test) granted(lease *holdfast.Lease) {
	t.lease = lease
	t.highest = append(t.highest, lease.Token())
}

func (t *test) exclusion(ctx context.Context) (string, error) {
	lease, err := t.a.Lock(ctx, t.name)
	if err != nil {
		return "", err
	}
	t.granted(lease)
	if second, err := t.b.TryLock(ctx, t.name); err == nil {
		second.Unlock(ctx)
		return "", errors.New("two clients hold one name at the same time")
	} else if !errors.Is(err, holdfast.ErrHeld) {
		return "", err
	}
	return "a second client is refused", nil
}

func (t *test) renewal(ctx context.Context) (string, error) {
	if err := t.lease.Renew(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("a lease of %v is renewed", t.ttl), nil
}

func (t *test) wakeUp(ctx context.Context) (string, error) {
	type outcome struct {
		lease *holdfast.Lease
		err   error
		at    time.Time
	}
	done := make(chan outcome, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		lease, err := t.b.Lock(ctx, t.name)
		done <- outcome{lease, err, time.Now()}
	}()
	for { // until the second client is queued, or as long as it would need for that
		info, err := t.a.Inspect(ctx, t.name)
		if err != nil {
			return "", err
		}
		if len(info.Waiters) > 0 || !t.a.Capabilities().Features.Has(holdfast.FeatureQueue) {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case out := <-done:
			return "", fmt.Errorf("a second client did not wait: %v", out.err)
		}
	}
	begin := time.Now()
	if err := t.lease.Unlock(ctx); err != nil {
		return "", err
	}
	out := <-done
	if out.err != nil {
		return "", out.err
	}
	t.late = out.at.Sub(begin)
	t.granted(out.lease)
	if err := t.lease.Unlock(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("a waiter has the lock %v after its release", t.late.Round(10*time.Microsecond)), nil
}

func (t *test) expiry(ctx context.Context) (string, error) {
	lease, err := t.a.Lock(ctx, t.name, holdfast.NoRenew())
	if err != nil {
		return "", err
	}
	begin := time.Now()
	t.granted(lease)
	next, err := t.b.Lock(ctx, t.name)
	if err != nil {
		return "", err
	}
	took := time.Since(begin)
	if lease.Err() == nil {
		return "", fmt.Errorf("the name was given to the next holder after %v, while the first lease of %v was still valid", took, t.ttl)
	}
	t.late = max(0, took-t.ttl)
	t.granted(next)
	if err := next.Unlock(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("a lease of %v that is not renewed is free after %v", t.ttl, took.Round(time.Millisecond)), nil
}

func (t *test) tokens(context.Context) (string, error) {
	for i := 1; i < len(t.highest); i++ {
		if t.highest[i] <= t.highest[i-1] {
			return "", fmt.Errorf("token %d was given after token %d", t.highest[i], t.highest[i-1])
		}
	}
	return fmt.Sprintf("%d tokens grow, the last is %d", len(t.highest), t.highest[len(t.highest)-1]), nil
}

func (t *test) leftovers(ctx context.Context) (string, error) {
	info, err := t.a.Inspect(ctx, t.name)
	if err != nil {
		return "", err
	}
	if len(info.Holders)+len(info.Waiters) > 0 {
		return "", fmt.Errorf("something is left of a name that was released: %+v", info)
	}
	return "nothing is left of a released name", nil
}

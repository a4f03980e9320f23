// Package doctor checks whether a store is safe and fast enough for locks.
//
// Run makes the checks that every store has in common: how long a round trip takes, and a self-test
// on a scratch name, which shows that locks exclude each other, are renewed, wake their waiters,
// expire, and have growing tokens. A store that can check more, such as the settings of its
// servers, implements [store.Diagnoser], and Run adds its findings. The file docs/doctor.md lists
// all checks.
package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	noLocks    = "locks do not work on this store as it is set up"
	seePackage = "see the documentation of the store's package for the rights and settings that it needs"
)

var (
	roundTripCheck = diagnosis.New("store.round-trip", store.LevelWarning,
		"a renewal must be answered within the TTL; calls that take more than a tenth of it make losses likely",
		"use a longer TTL, or find out why the store is slow")
	answersCheck   = diagnosis.New("store.answers", store.LevelFailure, "no lock can be taken", "see whether the server is up and can be reached from here, and whether the account may read")
	exclusionCheck = diagnosis.New("store.exclusion", store.LevelFailure, noLocks, seePackage)
	renewalCheck   = diagnosis.New("store.renewal", store.LevelFailure, noLocks, seePackage)
	wakeUpCheck    = diagnosis.New("store.wake-up", store.LevelFailure, noLocks, seePackage)
	expiryCheck    = diagnosis.New("store.expiry", store.LevelFailure, noLocks, seePackage)
	tokensCheck    = diagnosis.New("store.tokens", store.LevelFailure,
		"a resource that checks tokens accepts a holder whose lease is over",
		"do not use the store: it has lost data, or another program changes its records")
	leftoversCheck = diagnosis.New("store.leftovers", store.LevelWarning,
		"records that released locks leave behind fill the store",
		seePackage)
	delayCheck = diagnosis.New("store.delay", store.LevelWarning,
		"waiters get a lock later than they could",
		"see whether the store is overloaded, or whether a proxy or pooler keeps it from waking its waiters")
)

const (
	callTimeout     = 5 * time.Second  // of one call
	diagnoseTimeout = 30 * time.Second // of the checks of the store itself
	probes          = 50
	testTTL         = time.Second // of the self-test, within the store's limits
	slack           = 2 * time.Second
)

// Run checks a store for locks with that TTL. The checks take about five seconds if the store is
// healthy and grants short TTLs, and write only under a scratch name, which they leave empty.
func Run(ctx context.Context, s store.Store, ttl time.Duration) []store.Finding {
	findings := roundTrip(ctx, s, ttl)
	findings = append(findings, selfTest(ctx, s)...)
	if d, ok := s.(store.Diagnoser); ok {
		ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
		defer cancel()
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

// roundTrip compares the time that plain calls take with the TTL.
func roundTrip(ctx context.Context, s store.Store, ttl time.Duration) []store.Finding {
	took := make([]time.Duration, 0, probes)
	for range probes {
		begin := time.Now()
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := s.List(bounded, store.Query{Name: scratch()})
		cancel()
		if err != nil {
			return []store.Finding{answersCheck.Bad("the store does not answer: %v", err)}
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	p50, p99 := took[probes/2], took[probes-1]
	found := fmt.Sprintf("p50 %v, p99 %v of %d calls", p50.Round(time.Microsecond), p99.Round(time.Microsecond), probes)
	f := roundTripCheck.OK("%s", found)
	if p99 > ttl/10 {
		f = roundTripCheck.Bad("%s; the TTL is %v", found, ttl)
	}
	return []store.Finding{answersCheck.OK("the store answers"), f}
}

// scratch returns a name that no other program uses.
func scratch() string { return "holdfast:doctor:" + rand.Text() }

// selfTest tests a lock, contention, a renewal, a hand-off and the expiry of a grant.
func selfTest(ctx context.Context, s store.Store) []store.Finding {
	caps := s.Capabilities()
	ttl := max(testTTL, caps.MinTTL)
	if caps.MaxTTL > 0 {
		ttl = min(ttl, caps.MaxTTL)
	}
	t := &test{name: scratch(), ttl: ttl}
	for _, c := range []**holdfast.Client{&t.a, &t.b} {
		var err error
		if *c, err = holdfast.New(s, holdfast.WithTTL(ttl), holdfast.WithOwner("holdfast doctor")); err != nil {
			return []store.Finding{exclusionCheck.Bad("%v", err)}
		}
		defer (*c).Close()
	}
	steps := []struct {
		*diagnosis.Check
		do func(context.Context) (string, error)
	}{
		{exclusionCheck, t.exclusion},
		{renewalCheck, t.renewal},
		{wakeUpCheck, t.wakeUp},
		{expiryCheck, t.expiry},
		{tokensCheck, t.tokens},
		{leftoversCheck, t.leftovers},
	}
	var findings []store.Finding
	for _, step := range steps {
		stepCtx, cancel := context.WithTimeout(ctx, t.ttl+4*slack)
		found, err := step.do(stepCtx)
		cancel()
		if err != nil {
			return append(findings, step.Bad("%v", err)) // the following steps build on it
		}
		findings = append(findings, step.OK("%s", found))
	}
	if t.late > slack {
		return append(findings, delayCheck.Bad("a waiter got the lock %v later than it could", t.late.Round(time.Millisecond)))
	}
	return append(findings, delayCheck.OK("a waiter got the lock at most %v later than it could", t.late.Round(10*time.Microsecond)))
}

// A test is the self-test. Its steps return what they have found, which counts unless they fail.
type test struct {
	name    string
	ttl     time.Duration // as asked for, or longer if the store grants more
	a, b    *holdfast.Client
	lease   *holdfast.Lease
	highest []int64       // tokens in the order of their grants
	late    time.Duration // the longest delay between the time a lock became free and its grant to a waiter
}

func (t *test) lock(ctx context.Context, c *holdfast.Client, opts ...holdfast.CallOption) (err error) {
	if t.lease, err = c.Lock(ctx, t.name, opts...); err == nil {
		t.highest = append(t.highest, t.lease.Token())
		left := time.Until(t.lease.Deadline()) // without the margin, a twentieth of the TTL but at most a second
		t.ttl = max(t.ttl, (left + min(left/19, time.Second)).Round(100*time.Millisecond))
	}
	return err
}

func (t *test) exclusion(ctx context.Context) (string, error) {
	if err := t.lock(ctx, t.a); err != nil {
		return "", err
	}
	if second, err := t.b.TryLock(ctx, t.name); err == nil {
		second.Unlock(ctx)
		return "", errors.New("two clients hold one name at the same time")
	} else if !errors.Is(err, holdfast.ErrHeld) {
		return "", err
	}
	return "a second client is refused", nil
}

func (t *test) renewal(ctx context.Context) (string, error) {
	return fmt.Sprintf("a lease of %v is renewed", t.ttl), t.lease.Renew(ctx)
}

func (t *test) wakeUp(ctx context.Context) (string, error) {
	var at time.Time
	held, done := t.lease, make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		err := t.lock(ctx, t.b)
		at = time.Now()
		done <- err
	}()
	for { // until the second client is queued, or has had enough time for that
		info, err := t.a.Inspect(ctx, t.name)
		if err != nil {
			return "", err
		}
		if len(info.Waiters) > 0 || !t.a.Capabilities().Features.Has(holdfast.FeatureQueue) {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case err := <-done:
			return "", fmt.Errorf("a second client did not wait: %v", err)
		}
	}
	begin := time.Now()
	if err := held.Unlock(ctx); err != nil {
		return "", err
	}
	if err := <-done; err != nil {
		return "", err
	}
	late := at.Sub(begin)
	t.late = max(t.late, late)
	return fmt.Sprintf("a waiter has the lock %v after its release", late.Round(10*time.Microsecond)), t.lease.Unlock(ctx)
}

func (t *test) expiry(ctx context.Context) (string, error) {
	if err := t.lock(ctx, t.a, holdfast.NoRenew()); err != nil {
		return "", err
	}
	first, begin := t.lease, time.Now()
	if err := t.lock(ctx, t.b); err != nil {
		return "", err
	}
	took := time.Since(begin)
	if first.Err() == nil {
		return "", fmt.Errorf("the name was granted to the next holder after %v, while the first lease of %v was still valid", took, t.ttl)
	}
	t.late = max(t.late, took-t.ttl)
	found := fmt.Sprintf("a lease of %v that is not renewed is free after %v", t.ttl, took.Round(time.Millisecond))
	return found, t.lease.Unlock(ctx)
}

func (t *test) tokens(context.Context) (string, error) {
	for i := 1; i < len(t.highest); i++ {
		if t.highest[i] <= t.highest[i-1] {
			return "", fmt.Errorf("token %d was granted after token %d", t.highest[i], t.highest[i-1])
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

package holdfast_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// calls makes all public calls that take a name and options, and returns their errors.
func calls(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) map[string]error {
	return map[string]error{
		"Lock":       errOf(c.Lock(ctx, name, opts...)),
		"TryLock":    errOf(c.TryLock(ctx, name, opts...)),
		"RLock":      errOf(c.RLock(ctx, name, opts...)),
		"TryRLock":   errOf(c.TryRLock(ctx, name, opts...)),
		"Acquire":    errOf(c.Semaphore(name, 2).Acquire(ctx, 1, opts...)),
		"TryAcquire": errOf(c.Semaphore(name, 2).TryAcquire(ctx, 1, opts...)),
		"LockAll":    errOf(c.LockAll(ctx, []string{"good", name}, opts...)),
		"Do":         c.Do(ctx, name, work, opts...),
		"Once":       c.Once(ctx, name, time.Hour, work, opts...),
		"Campaign":   c.Campaign(ctx, name, work, opts...),
	}
}

// looks makes the public calls that take a name and no options, and returns their errors.
func looks(c *holdfast.Client, ctx context.Context, name string) map[string]error {
	errs := map[string]error{
		"Inspect": errOf(c.Inspect(ctx, name)),
		"Leader":  errOf(c.Leader(ctx, name)),
		"Leaders": nil,
		"Break":   c.Break(ctx, name, store.NewID()),
	}
	for _, err := range c.Leaders(ctx, name) {
		errs["Leaders"] = err
		break
	}
	return errs
}

func work(context.Context) error { panic("the work must not begin") }

// untouched returns a client whose store fails the test on any call.
func untouched(t *testing.T, opts ...holdfast.Option) *holdfast.Client {
	p := newProxy(failing{memstore.New()})
	p.acquire.set(func(context.Context, store.Request) (store.Answer, error) {
		t.Error("Acquire reached the store")
		return store.Answer{}, errNet
	})
	return newClient(t, p, opts...)
}

func TestBadNamesAreRefusedByEveryCall(t *testing.T) {
	c := untouched(t, holdfast.WithPrefix("app:"))
	for bad, says := range map[string]string{
		"":                       `such as "order:42"`,
		strings.Repeat("x", 509): "want at most 512, including the prefix",
		"a\nb":                   "control character U+000A",
		"\xff":                   "not UTF-8",
	} {
		check := func(call string, err error) {
			t.Helper()
			invalid(t, call, err, says)
			if !strings.HasPrefix(err.Error(), "holdfast: ") || len(err.Error()) > 700 {
				t.Errorf("%s(%.20q): an error of %d bytes: %v", call, bad, len(err.Error()), err)
			}
		}
		for call, err := range calls(c, t.Context(), bad) {
			check(call, err)
		}
		for call, err := range looks(c, t.Context(), bad) {
			check(call, err)
		}
		if !utf8.ValidString(bad) || strings.ContainsRune(bad, '\n') { // the others are prefixes of names
			for _, err := range c.List(t.Context(), bad) {
				check("List", err)
			}
		}
	}
}

func TestBadOptionsAreRefusedByEveryCall(t *testing.T) {
	c := untouched(t)
	many := strings.Repeat("x", 2000)
	for _, test := range []struct {
		says string
		opts []holdfast.CallOption
	}{
		{"the minimum of the memory store is 10ms", []holdfast.CallOption{holdfast.TTL(time.Millisecond)}},
		{"TTL -1s", []holdfast.CallOption{holdfast.TTL(-time.Second)}},
		{"MaxHold(0s): want a time above zero", []holdfast.CallOption{holdfast.MaxHold(0)}},
		{"TTL 2562047h47m16.854775807s: the maximum", []holdfast.CallOption{holdfast.TTL(math.MaxInt64)}},
		{"MinHold(2562047h47m16.854775807s): want", []holdfast.CallOption{holdfast.MinHold(math.MaxInt64)}},
		{"MinHold(-1s): want a time above zero", []holdfast.CallOption{holdfast.MinHold(-time.Second)}},
		{"MinHold(2m0s) is longer than MaxHold(1m0s)", []holdfast.CallOption{holdfast.MinHold(2 * time.Minute), holdfast.MaxHold(time.Minute)}},
		{"meta", []holdfast.CallOption{holdfast.Meta(many)}},
		{"control character", []holdfast.CallOption{holdfast.Meta("a\x1b[31m")}},
	} {
		for call, err := range calls(c, t.Context(), "n", test.opts...) {
			invalid(t, call, err, test.says)
		}
	}
	for _, err := range calls(c, t.Context(), "n", holdfast.Require(store.FeatureHosts|store.FeatureShared)) {
		want(t, err, holdfast.ErrUnsupported)
	}
	for _, opt := range []holdfast.CallOption{
		holdfast.Wait(-time.Second), holdfast.Retry(nil), holdfast.Retry(holdfast.Every(0)),
		holdfast.Retry(holdfast.Backoff(time.Second, time.Millisecond)), holdfast.Retry(holdfast.MaxAttempts(0, holdfast.Every(time.Second))),
	} {
		for _, err := range calls(c, t.Context(), "n", opt) {
			want(t, err, holdfast.ErrInvalid)
		}
	}
	for _, err := range []error{
		errOf(c.TryLock(t.Context(), "n", holdfast.Wait(time.Second))), errOf(c.TryRLock(t.Context(), "n", holdfast.Wait(time.Second))),
		errOf(c.Semaphore("n", 2).TryAcquire(t.Context(), 1, holdfast.Wait(time.Second))),
	} {
		invalid(t, "Try", err, "use the waiting call")
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	c := untouched(t)
	ctx := t.Context()
	for what, err := range map[string]error{
		"nil work for Do":       c.Do(ctx, "n", nil),
		"nil work for Once":     c.Once(ctx, "n", time.Hour, nil),
		"no keep for Once":      c.Once(ctx, "n", 0, work),
		"endless keep for Once": c.Once(ctx, "n", math.MaxInt64, work),
		"nil work for Campaign": c.Campaign(ctx, "n", nil),
		"Once in a lease":       c.Once(ctx, "n", time.Hour, work, holdfast.Reentrant()),
		"keep below MinHold":    c.Once(ctx, "n", time.Second, work, holdfast.MinHold(time.Minute)),
		"no ID for Break":       c.Break(ctx, "n", store.ID{}),
	} {
		invalid(t, what, err, "")
	}
	for _, permits := range []int{-1, 0, 4} {
		want(t, errOf(c.Semaphore("n", 3).Acquire(ctx, permits)), holdfast.ErrInvalid)
	}
	want(t, errOf(c.LockAll(ctx, nil)), holdfast.ErrInvalid)
	invalid(t, "a semaphore without permits", errOf(c.Semaphore("n", 0).Acquire(ctx, 1)), "limit 0")
	var none context.Context
	for call, err := range calls(c, none, "n") {
		invalid(t, call, err, "nil context")
	}
	for call, err := range looks(c, none, "n") {
		invalid(t, call, err, "nil context")
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	for says, opt := range map[string]holdfast.Option{
		"TTL 1ns":                   holdfast.WithTTL(1),
		"prefix: invalid: name":     holdfast.WithPrefix("a\nb"),
		"leaves no room":            holdfast.WithPrefix(strings.Repeat("x", 512)),
		"owner":                     holdfast.WithOwner("\x00"),
		"WithHandover(-1, 0s)":      holdfast.WithHandover(-1, 0),
		"a limit of 0 turns":        holdfast.WithHandover(1, -1),
		"prefix: invalid: name \"x": holdfast.WithPrefix(strings.Repeat("x", 600)),
	} {
		invalid(t, "New", errOf(holdfast.New(memstore.New(), opt)), says)
	}
	invalid(t, "New(nil)", errOf(holdfast.New(nil)), "store is nil")
	c := mustNew(t, memstore.New(), nil)
	defer c.Close()
	mustUnlock(t, mustLock(t, c, "nil options are no options", nil))
}

// With any options, a call returns a working lease or an error that explains itself, and leaves
// nothing behind.
func FuzzOptions(f *testing.F) {
	f.Add("n", int64(time.Second), int64(0), int64(0), int64(0), uint8(0), 1, 1, "meta")
	f.Add("n", int64(time.Second), int64(time.Second), int64(time.Minute), int64(time.Second), uint8(255), 2, 3, "")
	f.Add("n", int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), uint8(0x7f), 1, 1, "")
	f.Add("\xff", int64(-1), int64(-1), int64(-1), int64(-1), uint8(7), -1, -1, "\n")
	f.Fuzz(func(t *testing.T, name string, ttl, wait, maxHold, atLeast int64, flags uint8, permits, limit int, meta string) {
		s := memstore.New()
		c := mustNew(t, s)
		var opts []holdfast.CallOption
		add := func(bit uint8, opt holdfast.CallOption) {
			if flags&(1<<bit) != 0 {
				opts = append(opts, opt)
			}
		}
		add(0, holdfast.TTL(time.Duration(ttl)))
		add(1, holdfast.Wait(time.Duration(wait)))
		add(2, holdfast.MaxHold(time.Duration(maxHold)))
		add(3, holdfast.MinHold(time.Duration(atLeast)))
		add(4, holdfast.NoRenew())
		add(5, holdfast.Reentrant())
		add(6, holdfast.Meta(meta))
		var lease *holdfast.Lease
		var err error
		if flags&(1<<7) != 0 {
			lease, err = c.Semaphore(name, limit).Acquire(context.Background(), permits, opts...)
		} else {
			lease, err = c.Lock(context.Background(), name, opts...)
		}
		if err != nil {
			waited := flags&2 != 0 && errors.Is(err, context.DeadlineExceeded)
			if lease != nil || !waited && !errors.Is(err, holdfast.ErrInvalid) {
				t.Fatalf("lease %v and error %v", lease, err)
			}
		} else {
			if lease.Token() <= 0 || lease.Name() != name {
				t.Fatalf("token %d, name %q", lease.Token(), lease.Name())
			}
			if err := lease.Unlock(context.Background()); err != nil && !errors.Is(err, holdfast.ErrLost) {
				t.Fatal(err)
			}
		}
		must(t, c.Close())
		page, err := s.List(context.Background(), store.Query{})
		must(t, err)
		for _, lock := range page.Locks {
			for _, h := range lock.Holders {
				if h.State != store.Cooling {
					t.Fatalf("left behind: %+v", h)
				}
			}
		}
	})
}

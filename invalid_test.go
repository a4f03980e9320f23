package holdfast_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// calls are all public calls that take a name.
var calls = map[string]func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error{
	"Lock": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		_, err := c.Lock(ctx, name, opts...)
		return err
	},
	"TryLock": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		_, err := c.TryLock(ctx, name, opts...)
		return err
	},
	"RLock": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		_, err := c.RLock(ctx, name, opts...)
		return err
	},
	"TryRLock": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		_, err := c.TryRLock(ctx, name, opts...)
		return err
	},
	"Acquire": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		_, err := c.Semaphore(name, 2).Acquire(ctx, 1, opts...)
		return err
	},
	"TryAcquire": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		_, err := c.Semaphore(name, 2).TryAcquire(ctx, 1, opts...)
		return err
	},
	"LockAll": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		_, err := c.LockAll(ctx, []string{"good", name}, opts...)
		return err
	},
	"Do": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		return c.Do(ctx, name, work, opts...)
	},
	"Once": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		return c.Once(ctx, name, time.Hour, work, opts...)
	},
	"Campaign": func(c *holdfast.Client, ctx context.Context, name string, opts ...holdfast.CallOption) error {
		return c.Campaign(ctx, name, work, opts...)
	},
}

// looks are the public calls that take a name and no options.
var looks = map[string]func(c *holdfast.Client, ctx context.Context, name string) error{
	"Inspect": func(c *holdfast.Client, ctx context.Context, name string) error {
		_, err := c.Inspect(ctx, name)
		return err
	},
	"Leader": func(c *holdfast.Client, ctx context.Context, name string) error {
		_, err := c.Leader(ctx, name)
		return err
	},
	"Leaders": func(c *holdfast.Client, ctx context.Context, name string) error {
		for _, err := range c.Leaders(ctx, name) {
			return err
		}
		return nil
	},
	"Break": func(c *holdfast.Client, ctx context.Context, name string) error {
		return c.Break(ctx, name, store.NewID())
	},
}

func work(context.Context) error { panic("the work must not begin") }

// untouched is a store that fails the test on any call.
type untouched struct {
	store.Store
	t *testing.T
}

func (u untouched) Acquire(context.Context, store.Request) (store.Answer, error) {
	u.t.Error("Acquire reached the store")
	return store.Answer{}, errNet
}

func (u untouched) List(context.Context, store.Query) (store.Page, error) {
	u.t.Error("List reached the store")
	return store.Page{}, errNet
}

func (u untouched) Break(context.Context, string, store.ID) error {
	u.t.Error("Break reached the store")
	return errNet
}

func TestBadNamesAreRefusedByEveryCall(t *testing.T) {
	c := newClient(t, untouched{memstore.New(), t}, holdfast.WithPrefix("app:"))
	for bad, says := range map[string]string{
		"":                       `such as "order:42"`,
		strings.Repeat("x", 509): "want at most 512, including the prefix",
		"a\nb":                   "control character U+000A",
		"\xff":                   "not UTF-8",
	} {
		check := func(call string, err error) {
			t.Helper()
			if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "holdfast: ") {
				t.Errorf("%s(%.20q): %v, want an ErrInvalid that says %s", call, bad, err, says)
			}
			if len(err.Error()) > 700 {
				t.Errorf("%s(%.20q): an error of %d bytes", call, bad, len(err.Error()))
			}
		}
		for call, do := range calls {
			check(call, do(c, t.Context(), bad))
		}
		for call, do := range looks {
			check(call, do(c, t.Context(), bad))
		}
	}
}

func TestBadOptionsAreRefusedByEveryCall(t *testing.T) {
	c := newClient(t, untouched{memstore.New(), t})
	many := strings.Repeat("x", 2000)
	for _, test := range []struct {
		says string
		opts []holdfast.CallOption
	}{
		{"the minimum of the memory store is 10ms", []holdfast.CallOption{holdfast.TTL(time.Millisecond)}},
		{"TTL 0s", []holdfast.CallOption{holdfast.TTL(0)}},
		{"TTL -1s", []holdfast.CallOption{holdfast.TTL(-time.Second)}},
		{"MaxHold(0s): want a time above zero", []holdfast.CallOption{holdfast.MaxHold(0)}},
		{"TTL 2562047h47m16.854775807s: the maximum", []holdfast.CallOption{holdfast.TTL(math.MaxInt64)}},
		{"MaxHold(2562047h47m16.854775807s): want", []holdfast.CallOption{holdfast.MaxHold(math.MaxInt64)}},
		{"MinHold(2562047h47m16.854775807s): want", []holdfast.CallOption{holdfast.MinHold(math.MaxInt64)}},
		{"MinHold(-1s): want a time above zero", []holdfast.CallOption{holdfast.MinHold(-time.Second)}},
		{"MaxHold(-1s): want a time above zero", []holdfast.CallOption{holdfast.MaxHold(-time.Second)}},
		{"MinHold(2m0s) is longer than MaxHold(1m0s)", []holdfast.CallOption{holdfast.MinHold(2 * time.Minute), holdfast.MaxHold(time.Minute)}},
		{"meta", []holdfast.CallOption{holdfast.Meta(many)}},
		{"control character", []holdfast.CallOption{holdfast.Meta("a\x1b[31m")}},
	} {
		for call, do := range calls {
			err := do(c, t.Context(), "n", test.opts...)
			if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, want an ErrInvalid that says %s", call, err, test.says)
			}
		}
	}
	for call, do := range calls {
		want(t, do(c, t.Context(), "n", holdfast.Require(store.FeatureHosts|store.FeatureShared)), holdfast.ErrUnsupported)
		try := strings.HasPrefix(call, "Try")
		for _, opt := range []holdfast.CallOption{holdfast.Wait(-time.Second), holdfast.Retry(nil), holdfast.Retry(holdfast.Every(0)), holdfast.Retry(holdfast.Backoff(time.Second, time.Millisecond)), holdfast.Retry(holdfast.MaxAttempts(0, holdfast.Every(time.Second)))} {
			want(t, do(c, t.Context(), "n", opt), holdfast.ErrInvalid)
		}
		if try {
			err := do(c, t.Context(), "n", holdfast.Wait(time.Second))
			if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "use the waiting call") {
				t.Errorf("%s with Wait: %v", call, err)
			}
		}
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	c := newClient(t, untouched{memstore.New(), t})
	ctx := t.Context()
	for what, err := range map[string]error{
		"nil work for Do":       c.Do(ctx, "n", nil),
		"nil work for Once":     c.Once(ctx, "n", time.Hour, nil),
		"no keep for Once":      c.Once(ctx, "n", 0, work),
		"endless keep for Once": c.Once(ctx, "n", math.MaxInt64, work),
		"nil work for Campaign": c.Campaign(ctx, "n", nil),
		"Once in a lease":       c.Once(ctx, "n", time.Hour, work, holdfast.Reentrant()),
		"no ID for Break":       c.Break(ctx, "n", store.ID{}),
	} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, permits := range []int{-1, 0, 4} {
		_, err := c.Semaphore("n", 3).Acquire(ctx, permits)
		want(t, err, holdfast.ErrInvalid)
	}
	_, err := c.Semaphore("n", 0).Acquire(ctx, 1)
	if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "limit 0") {
		t.Errorf("a semaphore without permits: %v", err)
	}
	var none context.Context
	for call, do := range calls {
		if err := do(c, none, "n"); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "nil context") {
			t.Errorf("%s without a context: %v", call, err)
		}
	}
	for call, do := range looks {
		if err := do(c, none, "n"); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "nil context") {
			t.Errorf("%s without a context: %v", call, err)
		}
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
		_, err := holdfast.New(memstore.New(), opt)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an ErrInvalid that says %s", err, says)
		}
	}
	_, err := holdfast.New(nil)
	if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "store is nil") {
		t.Errorf("New(nil): %v", err)
	}
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
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		page, err := s.List(context.Background(), store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, lock := range page.Locks {
			for _, h := range lock.Holders {
				if h.State != store.Cooling {
					t.Fatalf("left behind: %+v", h)
				}
			}
		}
	})
}

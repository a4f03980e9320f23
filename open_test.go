package holdfast_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func TestOpenReturnsAClientForTheStoreOfTheURL(t *testing.T) {
	a, err := holdfast.Open(t.Context(), "memory:open-test", holdfast.WithOwner("alice"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := holdfast.Open(t.Context(), "memory:open-test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got := a.Capabilities().Store; got != "memory" {
		t.Errorf("store %q", got)
	}
	mustLock(t, a, "n")
	_, err = b.TryLock(t.Context(), "n")
	want(t, err, holdfast.ErrHeld)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	free(t, b, "n")
}

func TestOpenExplainsABadURLWithoutShowingThePassword(t *testing.T) {
	for _, test := range []struct{ url, says string }{
		{"", `want SCHEME:…, such as "redis://127.0.0.1:6379"`},
		{"localhost", "want SCHEME:…"},
		{"://x", "want SCHEME:…"},
		{"nosuch://user:s3cret@host:1/x?password=s3cret", `unknown scheme "nosuch"; registered schemes: closing, hung, memory, slowclose, unreachable`},
		{"memory:?colour=s3cret", `unknown parameter "colour"`},
		{"memory://s3cret@host", "memory"},
		{"nosuch://user:s3cret@", `unknown scheme "nosuch"`},
		{"user:s3cret@tcp(host:3306)/db", `unknown scheme "user"`},
		{"user:s3cret@host:6379", `unknown scheme "user"`},
		{"nosuch:user:s3cret@host", `unknown scheme "nosuch"`},
		{"nosuch:/user:s3cret@host/0", `unknown scheme "nosuch"`},
		{"s3cret@host:6379", "want SCHEME:…"},
		{"nosuch://user:s3cret/x@host", "percent-encode special characters in a user or password"},
		{"nosuch://user:%zz@host", "percent-encode"},
		{"nosuch://host?%zz", "malformed parameters"},
		{"nosuch://a,,b", "malformed host"},
		{"nosuch://u:s3cret@host:99999", "malformed host"},
		{"nosuch://u:s3cret@host:0", "malformed host"},
		{"nosuch:%zz", "malformed path"},
		{"nosuch:a\nb", "control character"},
	} {
		_, err := holdfast.Open(t.Context(), test.url)
		want(t, err, holdfast.ErrInvalid)
		if !strings.Contains(err.Error(), test.says) {
			t.Errorf("Open(%q): %q does not say %q", test.url, err, test.says)
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Open(%q) shows the password: %q", test.url, err)
		}
	}
}

// closings receives the stores that "closing:" opened.
var closings = make(chan *closing, 1)

func init() {
	store.Register("closing", func(ctx context.Context, _ *store.URL) (store.Store, error) {
		s, err := store.Open(ctx, "memory:")
		c := &closing{s, make(chan struct{})}
		closings <- c
		return c, err
	})
}

func TestOpenRefusesBadOptionsAndClosesTheStore(t *testing.T) {
	_, err := holdfast.Open(t.Context(), "closing:", holdfast.WithTTL(-time.Second))
	want(t, err, holdfast.ErrInvalid)
	if !isDone((<-closings).closed) {
		t.Error("the store stayed open")
	}
}

type closing struct {
	store.Store
	closed chan struct{}
}

func (c *closing) Close() error {
	close(c.closed)
	return c.Store.Close()
}

func TestRegisterPanicsOnADuplicateScheme(t *testing.T) {
	for _, scheme := range []string{"memory", "", "Upper", "a b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register(%q) did not panic", scheme)
				}
			}()
			store.Register(scheme, func(context.Context, *store.URL) (store.Store, error) { return nil, nil })
		}()
	}
}

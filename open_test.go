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
	must(t, err)
	b, err := holdfast.Open(t.Context(), "memory:open-test")
	must(t, err)
	defer b.Close()
	if got := a.Capabilities().Store; got != "memory" {
		t.Errorf("store %q", got)
	}
	mustLock(t, a, "n")
	want(t, errOf(b.TryLock(t.Context(), "n")), holdfast.ErrHeld)
	must(t, a.Close())
	mustLock(t, b, "n")
}

func TestOpenExplainsABadURLWithoutShowingThePassword(t *testing.T) {
	for _, test := range []struct{ url, says string }{
		{"", `want SCHEME:…, such as "redis://127.0.0.1:6379"`},
		{"nosuch://user:s3cret@host:1/x?password=s3cret", `unknown scheme "nosuch"; registered schemes: hung, memory, slowclose, unreachable`},
		{"memory:?colour=s3cret", `unknown parameter "colour"`},
		{"memory://s3cret@host", "memory"},
		{"user:s3cret@tcp(host:3306)/db", `unknown scheme "user"`},
		{"user:s3cret@host:6379", `unknown scheme "user"`},
		{"nosuch:/user:s3cret@host/0", `unknown scheme "nosuch"`},
		{"s3cret@host:6379", "want SCHEME:…"},
		{"nosuch://user:s3cret/x@host", "percent-encode special characters in a user or password"},
		{"nosuch://user:%zz@host", "percent-encode"},
		{"nosuch://u:s3cret@host:99999", "malformed host"},
	} {
		_, err := holdfast.Open(t.Context(), test.url)
		invalid(t, test.url, err, test.says)
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Open(%q) shows the password: %q", test.url, err)
		}
	}
}

func TestOpenRefusesBadOptionsAndClosesTheStore(t *testing.T) {
	bubble(t, func(w *world) {
		want(w, errOf(holdfast.Open(w.Context(), "slowclose:", holdfast.WithTTL(-time.Second))), holdfast.ErrInvalid)
		w.took(2 * time.Second) // as long as Close of this store
	})
}

func TestRegisterPanicsOnADuplicateScheme(t *testing.T) {
	for _, scheme := range []string{"memory", "", "Upper", "a b"} {
		open := func(context.Context, *store.URL) (store.Store, error) { return nil, nil }
		if panicOf(func() { store.Register(scheme, open) }) == nil {
			t.Errorf("Register(%q) did not panic", scheme)
		}
	}
}

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// mistypedURLs returns wrong URLs that contain the password s3cret, for all schemes.
func mistypedURLs() (urls []string) {
	schemes := append(store.Schemes(), "nosuch", "https", "redsi")
	for _, scheme := range schemes {
		for _, rest := range []string{
			":u:s3cret@127.0.0.1:1", ":u:s3cret@127.0.0.1:1/db", ":/u:s3cret@127.0.0.1:1", ":/u:s3cret@127.0.0.1:1/db", // slashes forgotten
			":///u:s3cret@127.0.0.1:1", ":////u:s3cret@127.0.0.1:1/db",
			"//u:s3cret@127.0.0.1:1/db", "u:s3cret@127.0.0.1:1", // colon forgotten
			":u:s3cret@tcp(127.0.0.1:1)/db", "://u:s3cret@tcp(127.0.0.1:1)/db", "://u:s3cret@unix(/tmp/x)/db", // in the form of a Go driver
			"://u:s3cret@127.0.0.1:port/db", "://u:s3cret@127.0.0.1:99999/db", "://u:s3cret@[::1/db", "://u:s3cret@", "://u:s3cret@/db",
			"://u:s3cret/s3cret@127.0.0.1:1/db", "://u:s3cret?s3cret@127.0.0.1:1/db", "://u:s3cret#s3cret@127.0.0.1:1/a/b", "://u:s3cret%zz@127.0.0.1:1/db",
			"://u:s3cret@127.0.0.1:1/db?password=s3cret", "://127.0.0.1:1/db?user=u&password=s3cret", "://s3cret@127.0.0.1:1/a/b", "://:s3cret@127.0.0.1:1/a/b",
			"://u:s3cret@127.0.0.1:1/a/b", "://u:s3cret@127.0.0.1:1/db",
		} {
			urls = append(urls, scheme+rest)
		}
	}
	return append(urls, "u:s3cret@tcp(127.0.0.1:1)/db", "u:s3cret@127.0.0.1:1", "s3cret@127.0.0.1:1", ":s3cret@127.0.0.1:1", "jdbc:mysql://u:s3cret@127.0.0.1:1/db")
}

// People mistype URLs, and errors end up in logs and in the mail of cron.
func TestNoStoreShowsThePasswordOfAMistypedURL(t *testing.T) {
	for _, url := range mistypedURLs() {
		if scheme, _, _ := strings.Cut(url, ":"); scheme == "sqlite" || scheme == "memory" {
			continue // they have no password, and their errors contain the path
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		c, err := holdfast.Open(ctx, url)
		cancel()
		if err == nil {
			c.Close()
			t.Errorf("%s: opened", url)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", url, err)
		}
		st := storeFlag{url: url}
		st.addTo(newRootCommand())
		st.flag.Changed, st.url = true, url
		if err := st.check(); err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("--store %s: %v", url, err)
		}
		for _, db := range databases {
			if _, err := db.schema(url); err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("schema for %s: %v", url, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if err := db.migrate(ctx, url); err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("migrate of %s: %v", url, err)
			}
			cancel()
		}
	}
	if _, err := holdfast.Open(t.Context(), "127.0.0.1:6379"); !errors.Is(err, holdfast.ErrInvalid) || strings.Contains(err.Error(), "memory:") {
		t.Errorf("without a scheme: %v", err)
	}
}

func TestTheURLOfAZooKeeperServerGetsASessionThatAllowsTheTTL(t *testing.T) {
	for _, test := range []struct {
		url, want string
		ttl       time.Duration
	}{
		{"zk://h", "zk://h?session=2m6s", 100 * time.Second},
		{"zks://h", "zks://h?session=10s", 2 * time.Second},
		{"zks://h?ca=f", "zks://h?ca=f&session=1h0m0s", 2 * time.Hour},
		{"zks://h?session=9s", "zks://h?session=9s", 100 * time.Second},
		{"redis://h", "redis://h", 100 * time.Second},
	} {
		if got := withSession(test.url, test.ttl); got != test.want {
			t.Errorf("%s with a TTL of %v: %s, want %s", test.url, test.ttl, got, test.want)
		}
	}
}

package zkstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/ports"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

func TestBadURLsAreRefusedAndSayWhatToWrite(t *testing.T) {
	for url, want := range map[string]string{
		"zk://":                          "no host",
		"zk://a?timeout=3s":              "known are session",
		"zk://a?session=soon":            "such as 40s",
		"zk://a?session=1ms":             "from 1s",
		"zk://user@a":                    "USER:PASSWORD",
		"zk://:secret@a":                 "USER:PASSWORD",
		"zk://a/b//c":                    "path",
		"zk://a/..":                      "path",
		"zk://a/%2e%2e/x":                "path",
		"zk://us%3Aer:secret@a":          "colon",
		"zk://user:secret@a?password=xy": "unknown parameter",
	} {
		_, err := store.Open(t.Context(), url)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ErrInvalid with %q", url, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestAURLNamesHostsRootAndSession(t *testing.T) {
	roots := map[string]string{"zk://a": "/holdfast", "zk://a:1,b,[::1]/x/y?session=10s": "/x/y"}
	for url, want := range map[string]wire.Options{
		"zk://a":                           {Servers: []string{"a:2181"}, Timeout: 40 * time.Second},
		"zk://a:1,b,[::1]/x/y?session=10s": {Servers: []string{"a:1", "b:2181", "[::1]:2181"}, Timeout: 10 * time.Second},
	} {
		u, err := store.ParseURL(url)
		must(t, err)
		root, got, err := configure(u)
		if err != nil || root != roots[url] || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s, %v, %v, want %v", url, root, got, err, want)
		}
	}
}

func TestOpenEndsWithItsContextIfNobodyAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := store.Open(ctx, "zk://user:secret@"+ports.Addr(ports.Reserve(t)))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "majority") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want a deadline, what to look for, and no password", err)
	}
}

func TestNodesBelongToTheUserOfTheURL(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	t.Parallel()
	ctx, owner := within(t), "zk://app:secret@"+server.Addr()+"/deep/root"
	suites.URLWorks(t, owner)
	for _, user := range []string{"", "app:wrong-secret@"} {
		other, err := holdfast.Open(ctx, "zk://"+user+server.Addr()+"/deep/root")
		if err == nil {
			err = suites.Pair(ctx, other, "a")
			other.Close()
		}
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "check the user and the password") || strings.Contains(err.Error(), "secret") {
			t.Errorf("user %q: %v, want ErrInvalid, what to check, and no password", user, err)
		}
	}
	suites.URLWorks(t, owner)
}

func TestEveryNameHasANodeOfItsOwn(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{".", "..", "...", "a.b", "/", "//", "a/b", "a%2fb", "%", "%25", " ", "é", "e\u0301", "🔒", "token", "zookeeper", "A", "a"} {
		node := encode(name)
		if other, ok := seen[node]; ok {
			t.Errorf("%q and %q are both %q", name, other, node)
		}
		seen[node] = name
		if back, ok := decode(node); !ok || back != name {
			t.Errorf("%q is %q, and back %q", name, node, back)
		}
		if strings.Contains(node, "/") || node == "." || node == ".." {
			t.Errorf("%q is %q, which is no node", name, node)
		}
	}
	for _, node := range []string{"%", "%2", "%zz", "%41", "a b"} {
		if name, ok := decode(node); ok {
			t.Errorf("node %q is taken for %q", node, name)
		}
	}
}

func TestTheOrderOfArrivalGoesOnWhenTheServersNumbersStartAgain(t *testing.T) {
	id := store.NewID().String()
	var last node
	for i, seq := range []string{"2147483646", "2147483647", "-2147483648", "-2147483647"} {
		n, ok := parseNode("x1.0-" + id + "-" + seq)
		if !ok {
			t.Fatalf("%s is not read", seq)
		}
		if i > 0 && arrival(last, n) >= 0 {
			t.Errorf("%d is not before %d", last.seq, n.seq)
		}
		last = n
	}
}

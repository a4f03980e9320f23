package faultproxy_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// contains matches requests that contain a word.
func contains(word string) func([]byte) bool {
	return func(b []byte) bool { return bytes.Contains(b, []byte(word)) }
}

// throughProxy starts a Redis and connects to it through a proxy.
func throughProxy(t testing.TB) (*servers.Redis, *faultproxy.Proxy, *servers.RESPConn) {
	t.Helper()
	r := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	p := faultproxy.Start(t, r.Addr())
	c, err := servers.DialRESP(p.Addr(), nil, "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return r, p, c
}

func wantSeen(t testing.TB, seen <-chan struct{}) {
	t.Helper()
	select {
	case <-seen:
	case <-time.After(limit):
		t.Fatal("the request was not seen")
	}
}

func TestHoldRepliesAfterExecutesTheRequestAndHoldsTheReply(t *testing.T) {
	r, p, c := throughProxy(t)
	seen := p.HoldRepliesAfter(contains("INCR"))
	if answer, err := c.Do("PING"); answer != "PONG" {
		t.Fatalf("a request before the one that matches: %v, %v", answer, err)
	}
	c.Timeout = quiet
	if answer, err := c.Do("INCR", "n"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the reply was not held: %v, %v", answer, err)
	}
	wantSeen(t, seen)
	eventually(t, "the reply waits", func() bool { return p.ToClient.Waiting() == len(":1\r\n") })
	if n := r.Must("GET", "n"); n != "1" {
		t.Errorf("n is %v at the server, want 1", n)
	}
	p.Heal()
	c.Timeout = limit
	if answer, err := c.Receive(); answer != int64(1) {
		t.Errorf("the held reply is %v, %v", answer, err)
	}
	if answer, err := c.Do("INCR", "n"); answer != int64(2) {
		t.Errorf("the hook fired twice: %v, %v", answer, err)
	}
}

func TestDropRepliesAfterExecutesTheRequestAndLosesTheReply(t *testing.T) {
	r, p, c := throughProxy(t)
	seen := p.DropRepliesAfter(contains("INCR"))
	if err := c.Send("INCR", "n"); err != nil {
		t.Fatal(err)
	}
	wantSeen(t, seen)
	eventually(t, "the reply is lost", func() bool { return p.ToClient.Dropped() == int64(len(":1\r\n")) })
	if n := r.Must("GET", "n"); n != "1" {
		t.Errorf("n is %v at the server, want 1", n)
	}
	c.Timeout = quiet
	if answer, err := c.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the reply was not dropped: %v, %v", answer, err)
	}
	p.Heal()
	c.Timeout = limit
	if answer, err := c.Do("PING"); answer != "PONG" {
		t.Errorf("the next reply is %v, %v", answer, err)
	}
}

func TestCutOnStopsTheRequestBeforeItArrives(t *testing.T) {
	r, p, c := throughProxy(t)
	seen := p.CutOn(contains("INCR"))
	if answer, err := c.Do("INCR", "n"); err == nil {
		t.Fatalf("answered %v", answer)
	}
	wantSeen(t, seen)
	eventually(t, "the server has lost its client", func() bool {
		return strings.Count(r.Must("CLIENT", "LIST").(string), "\n") == 1 // the connection of this command
	})
	if n := r.Must("GET", "n"); n != nil {
		t.Errorf("n is %v at the server", n)
	}
}

func TestRequestInPiecesMatches(t *testing.T) {
	p := faultproxy.Start(t, startEcho(t))
	stranger, c := dial(t, p), dial(t, p)
	seen := p.HoldRepliesAfter(contains("release"))
	send(t, c, "rele")
	want(t, c, "rele")
	send(t, stranger, "ase") // on another connection, so it is not part of the request
	want(t, stranger, "ase")
	send(t, c, "ase")
	wantSeen(t, seen)
	wantSilence(t, c)
}

func TestHookDoesNotSeeEarlierBytes(t *testing.T) {
	p := faultproxy.Start(t, startEcho(t))
	c := dial(t, p)
	send(t, c, "lock")
	want(t, c, "lock")
	p.HoldRepliesAfter(contains("lock"))
	send(t, c, "other")
	want(t, c, "other")
}

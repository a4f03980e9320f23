//go:build unix

package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/inspect"
	"github.com/holdfast-lock/holdfast/internal/testing/ports"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// get returns the status and the text of a page.
func get(t *testing.T, url, host string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// ui starts a server of pages, calls look with its URL, and ends it.
func (s *site) ui(look func(url string), args ...string) {
	s.t.Helper()
	p := s.start(append([]string{"ui"}, args...)...)
	until(s.t, "ui prints its address", func() bool { return strings.Contains(p.out.String(), "\n") })
	look(strings.TrimSpace(p.out.String()))
	p.signal(syscall.SIGTERM)
	p.wantCode(0)
}

// Such as the release of a lock by force, whose outcome the user must see.
func TestUIAnswersARequestBeforeItEnds(t *testing.T) {
	t.Parallel()
	b := &brokenStore{Store: memstore.New()}
	u := &ui{listen: ports.Addr(ports.Reserve(t)), path: "/", interval: time.Second}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan struct{})
	check := func(string, string) bool { // is called while the request is served
		interrupt()
		select {
		case <-ended:
			t.Error("the server ended during the request")
		case <-time.After(200 * time.Millisecond): // far longer than it takes
		}
		return true
	}
	c := &connection{suites.Client(t, b), &ttlStore{Store: b}}
	go func() {
		defer close(ended)
		if err := u.serve(ctx, c, []inspect.Option{inspect.AllowBreak(check)}); err != nil {
			t.Error(err)
		}
	}()
	until(t, "ui answers", func() bool { _, err := http.Get("http://" + u.listen + "/health"); return err == nil })
	url := "http://ann:secret@" + u.listen + "/break?name=a&id=" + store.NewID().String()
	if status, body := get(t, url, ""); status != http.StatusConflict { // the store has answered
		t.Errorf("status %d: %s", status, body)
	}
	<-ended
}

func TestUIServesItsHostsUntilItIsInterrupted(t *testing.T) {
	s := newSite(t)
	s.ok("acquire", "job")
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		s.ui(func(url string) {
			if host := "http://localhost:"; listen != "127.0.0.1:0" && !strings.HasPrefix(url, host) {
				t.Errorf("--listen %s prints %s, want %s…", listen, url, host)
			}
			for host, want := range map[string]int{
				"": http.StatusOK, "locks.example": http.StatusOK, "LOCKS.example:443": http.StatusOK, "other.example": http.StatusOK,
				"evil.example": http.StatusMisdirectedRequest,
			} {
				status, body := get(t, url, host)
				if status != want || (status == http.StatusOK) != strings.Contains(body, "job") || strings.Contains(body, "by force") {
					t.Errorf("--listen %s, a request for %q: status %d, want %d: %s", listen, host, status, want, body)
				}
			}
		}, "--listen", listen, "--path", "/locks", "--host", "locks.example", "--host", "other.example")
	}
}

// Pages of two servers must not look alike.
func TestUIShowsWhichStoreItIs(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true, Password: "sEcReT"})
	s := newSite(t)
	for title, args := range map[string][]string{
		"redis://:***@" + server.Addr(): nil,
		"the shop":                      {"--title", "the shop"},
	} {
		s.ui(func(url string) {
			if status, _ := get(t, url, "evil.example"); status != http.StatusMisdirectedRequest {
				t.Errorf("a request for another host, without --host: status %d", status)
			}
			_, body := get(t, url, "")
			for _, want := range []string{"<title>" + title + " – Locks</title>", "<small>" + title + "</small>"} {
				if !strings.Contains(body, want) {
					t.Errorf("no %q in:\n%.800s", want, body)
				}
			}
			if strings.Contains(body, "sEcReT") || strings.Contains(body, "replicas=") {
				t.Errorf("the page shows the password or a parameter:\n%.800s", body)
			}
		}, append([]string{"--listen", "127.0.0.1:0", "--store", "redis://:sEcReT@" + server.Addr() + "?replicas=0"}, args...)...)
	}
}

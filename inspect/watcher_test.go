package inspect_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/inspect"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A fakeStore takes some time to list, and sums up that time.
type fakeStore struct {
	store.Store
	takes, busy, lists atomic.Int64
	twice              bool                        // it lists each name twice
	breaking           func(context.Context) error // precedes Break, which it prevents by an error
}

func (s *fakeStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	s.lists.Add(1)
	begin := time.Now()
	defer func() { s.busy.Add(int64(time.Since(begin))) }()
	select {
	case <-time.After(time.Duration(s.takes.Load())):
	case <-ctx.Done():
		time.Sleep(time.Microsecond) // a call returns after the end of its context, if only a little later
		return store.Page{}, ctx.Err()
	}
	page, err := s.Store.List(ctx, q)
	if s.twice {
		page.Locks = append(page.Locks, page.Locks...)
	}
	return page, err
}

func (s *fakeStore) Break(ctx context.Context, name string, id store.ID) error {
	if err := s.breaking(ctx); err != nil {
		return err
	}
	return s.Store.Break(ctx, name, id)
}

func newFakeStore(t *testing.T, takes time.Duration, opts ...inspect.Option) (*fakeStore, http.Handler) {
	t.Helper()
	s := &fakeStore{Store: memstore.New()}
	s.takes.Store(int64(takes))
	return s, inspect.Handler(newClient(t, s), opts...)
}

// visit requests a page, and gives up after a time limit.
func visit(t *testing.T, h http.Handler, path string, limit time.Duration) *httptest.ResponseRecorder {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", path, nil))
	return w
}

func TestAnOutageKeepsTheLastList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newFakeStore(t, 0)
		acquire(t, s.Store, store.Request{Name: "job", Owner: "web-1"})
		open, leave := context.WithCancel(t.Context()) // a page that stays open
		w := httptest.NewRecorder()
		go h.ServeHTTP(w, httptest.NewRequestWithContext(open, "GET", "/events", nil))
		visit(t, h, "/", time.Minute)
		listed := time.Now().Format("15:04:05")
		s.takes.Store(int64(time.Hour))
		time.Sleep(time.Minute)
		for path, parts := range map[string][]string{
			"/":              {">job</a>", "<b>1</b> lock: "},
			"/lock?name=job": {"Held by web-1"},
		} {
			w := visit(t, h, path, time.Minute)
			body := w.Body.String()
			for _, part := range append(parts, "The store does not answer", "The list is <b", ">1 min 0 s</b> old, from <time", ">"+listed[:5]) {
				if !strings.Contains(body, part) {
					t.Errorf("%s during the outage: no %q in:\n%s", path, part, body)
				}
			}
			if w.Code != http.StatusBadGateway {
				t.Errorf("%s: status %d", path, w.Code)
			}
		}
		s.takes.Store(0)
		time.Sleep(time.Minute)
		if body := visit(t, h, "/", time.Minute).Body.String(); strings.Contains(body, "does not answer") || !strings.Contains(body, ">job</a>") {
			t.Errorf("after the outage:\n%s", body)
		}
		if body := visit(t, h, "/lock?name=job", time.Minute).Body.String(); strings.Contains(body, "<b>acquired</b>") || strings.Contains(body, "<b>expired</b>") {
			t.Errorf("the outage looks like a change:\n%s", body)
		}
		leave()
		time.Sleep(time.Minute)
	})
}

// Without a listing, the number of locks is unknown, which is not the same as zero.
func TestAStoreThatNeverAnsweredHasNoNumberOfLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := newFakeStore(t, time.Hour)
		if body := visit(t, h, "/", time.Minute).Body.String(); strings.Contains(body, "<b>0</b> locks") || strings.Contains(body, "The list is") {
			t.Errorf("%s", body)
		}
		time.Sleep(time.Minute)
	})
}

func TestASlowStoreIsListedForATenthOfTheTime(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s, h := newFakeStore(t, takes)
			const long = 10 * time.Minute
			w := visit(t, h, "/events", long)
			if busy := time.Duration(s.busy.Load()); busy > long/10+2*takes {
				t.Errorf("a listing takes 2 × %v: the store was busy for %v of %v", takes, busy, long)
			}
			if n := strings.Count(w.Body.String(), "\n\n"); n < int(long/(20*takes))-1 {
				t.Errorf("a listing takes 2 × %v: %d messages in %v", takes, n, long)
			}
			time.Sleep(long) // no page is open
			s.busy.Store(0)
			if time.Sleep(long); s.busy.Load() != 0 {
				t.Error("listed while nobody looks")
			}
		})
	}
}

func TestAListingThatTakesTooLongShowsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newFakeStore(t, 4*time.Second)
		for i := range 250 {
			acquire(t, s.Store, store.Request{Name: fmt.Sprintf("n%03d", i)})
		}
		w := visit(t, h, "/", time.Minute)
		if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, "Only the first 100 names") || !strings.Contains(body, "n099") {
			t.Errorf("status %d: %s", w.Code, body)
		}
		s.takes.Store(0)
		time.Sleep(2 * time.Minute)
		visit(t, h, "/", time.Minute) // lists all names
		if body := visit(t, h, "/lock?name=n150", time.Minute).Body.String(); !strings.Contains(body, "Held by") || strings.Contains(body, "acquired") {
			t.Errorf("a lock that was beyond the end of the first listing: %s", body)
		}
		time.Sleep(10 * time.Minute) // no page is open, so the listing ends
	})
}

func TestAStreamOfHTTP2OutlivesAPause(t *testing.T) {
	t.Parallel()
	_, h := newFakeStore(t, 0, inspect.Every(12*time.Second)) // longer than the write limit of a browser
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	reply, err := server.Client().Get(server.URL + "/events")
	must(t, err)
	defer reply.Body.Close()
	lines := bufio.NewScanner(reply.Body)
	for messages := 0; messages < 2; {
		if !lines.Scan() {
			t.Fatalf("%s: the stream ended after %d messages: %v", reply.Proto, messages, lines.Err())
		}
		if lines.Text() == "" {
			messages++
		}
	}
}

// Shutdown waits until all connections are idle.
func TestAServerThatShutsDownEndsItsStreams(t *testing.T) {
	_, h := newFakeStore(t, 0)
	server := httptest.NewServer(h)
	defer server.Close()
	reply, err := server.Client().Get(server.URL + "/events")
	must(t, err)
	defer reply.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, server.Config.Shutdown(ctx))
}

// A pipes listener accepts the other ends of pipes. Unlike TCP, a pipe has no buffer, and works in
// fake time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// dial sends a request to a server with this handler, in a synctest bubble. The server has to
// close the connection within the time limit of a reply, whatever the client does.
func dial(t *testing.T, h http.Handler, request string) net.Conn {
	t.Helper()
	done := make(chan struct{})
	server := &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(done)
		}
	}}
	listener := make(pipes, 1)
	client, accepted := net.Pipe()
	listener <- accepted
	go server.Serve(listener)
	t.Cleanup(func() {
		begin := time.Now()
		<-done
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("the server waited for %v", took)
		}
		server.Close()
		client.Close()
		time.Sleep(time.Minute) // no page is open, so the listing ends
	})
	if _, err := client.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	return client
}

func TestABrowserThatDoesNotReadIsDropped(t *testing.T) {
	for _, path := range []string{"/", "/events"} {
		synctest.Test(t, func(t *testing.T) {
			_, h := newFakeStore(t, 0)
			dial(t, h, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		})
	}
}

package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/inspect"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A listing of many names ends early. The names that are done stay in the store for long, and may be
// many more than those that are held.
func TestLocksBeyondTheEndOfTheListingAreFoundAndShown(t *testing.T) {
	s := newSite(t)
	for i := range 10_150 {
		req := acquire(t, s.store, store.Request{Name: fmt.Sprintf("done:%05d", i)})
		must(t, s.store.Release(t.Context(), req.Name, req.ID, store.Keep{State: store.Done, For: time.Hour}))
	}
	s.lock("order:1")
	s.lock("order:2")
	body := s.eventually("", "Only the first 10000 names")
	if !strings.Contains(body, "more than <b>10000</b> locks") {
		t.Errorf("the sums of a part of the names:\n%.2000s", body)
	}
	for path, want := range map[string][]string{
		"?q=order:":          {"order:1", "order:2", "<b>2</b> locks: ", "<b>2</b> held", "<b>0</b> done", "<b>0</b> waiting"},
		"?q=order:2":         {"order:2", "<b>1</b> lock: ", "<b>1</b> held"},
		"?q=done:100":        {"done:10000", "<b>100</b> locks: ", "<b>0</b> held", "<b>100</b> done"},
		"?q=done:":           {"done:00000", "more than <b>10000</b> locks", "Only the first 10000 names under this prefix were read"},
		"?q=none":            {"No lock is held under this prefix"},
		"lock?name=order:1":  {"Held by web-1"},
		"lock?name=nothing":  {"is free"},
		"lock?name=done:149": {"is free"},
	} {
		_, body := s.get(path)
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s: no %q in:\n%.2000s", path, part, body)
			}
		}
	}
}

// A listing of a prefix counts against the tenth of the time too, and all browsers share it.
func TestListingsOfPrefixesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newFakeStore(t, 0)
		for i := range 10_100 {
			acquire(t, s.Store, store.Request{Name: fmt.Sprintf("n%05d", i)})
		}
		s.takes.Store(int64(10 * time.Millisecond))
		const long = 40 * time.Second
		var wg sync.WaitGroup
		for range 3 {
			for _, path := range []string{"/events?q=n1", "/events?q=n100"} {
				wg.Go(func() {
					if body := visit(t, h, path, long).Body.String(); !strings.Contains(body, "n10099") {
						t.Errorf("%s: %.2000s", path, body)
					}
				})
			}
		}
		wg.Wait()
		if busy := time.Duration(s.busy.Load()); busy > long/10+5*time.Second {
			t.Errorf("the store was busy for %v of %v", busy, long)
		}
		time.Sleep(10 * time.Minute) // no page is open
	})
}

func TestALockWithManyHoldersAndWaitersMakesAShortPage(t *testing.T) {
	s := newSite(t)
	for range 500 {
		if _, err := s.client.RLock(t.Context(), "catalog"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		acquire(t, s.store, store.Request{Name: "catalog", Queue: true, Owner: fmt.Sprint("waiter-", i)})
	}
	list := s.eventually("", "and 497 more")
	if n := strings.Count(list, "web-1"); n != 5 || !strings.Contains(list, "and 495 more holders") {
		t.Errorf("%d holders in the list:\n%s", n, list)
	}
	_, page := s.get("lock?name=catalog")
	if n := strings.Count(page, "Held by"); n != 100 || !strings.Contains(page, "and 400 more holders") || !strings.Contains(page, "and 400 more waiters") {
		t.Errorf("%d holders on the page", n)
	}
}

func TestANameThatIsListedTwiceIsShownOnce(t *testing.T) {
	s, h := newFakeStore(t, 0)
	s.twice = true
	acquire(t, s.Store, store.Request{Name: "job"})
	body := visit(t, h, "/", suites.Patience).Body.String()
	if n := strings.Count(body, ">job</a>"); n != 1 || !strings.Contains(body, "<b>1</b> lock: ") {
		t.Errorf("%d times:\n%s", n, body)
	}
}

func TestHealthChecksAreBoundedAtTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newFakeStore(t, 0)
		for range 1000 {
			if w := visit(t, h, "/healthz", time.Minute); w.Code != http.StatusOK {
				t.Fatal(w.Code)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := s.lists.Load(); n > 11 || n < 9 {
			t.Errorf("the store was asked %d times in 10 seconds", n)
		}
	})
}

// Even if the user closes the page, the outcome of the release is known.
func TestAReleaseIsFinishedIfTheBrowserGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newFakeStore(t, 0, inspect.AllowBreak(func(_, _ string) bool { return true }))
		req := acquire(t, s.Store, store.Request{Name: "job"})
		ctx, leave := context.WithCancel(t.Context())
		s.breaking = func(ctx context.Context) error {
			leave()
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		form := url.Values{"name": {"job"}, "id": {req.ID.String()}, "typed": {"job"}, "reason": {"stuck"}}
		r := httptest.NewRequestWithContext(ctx, "POST", "/break", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth("ann", "x")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if page, err := s.List(t.Context(), store.Query{}); err != nil || len(page.Locks) != 0 {
			t.Errorf("not released: %+v, %v", page, err)
		}
	})
}

// The reply of the store is lost, or does not come.
func TestAReleaseOfUnknownOutcomeIsNotReportedAsFailed(t *testing.T) {
	for what, reply := range map[string]func(context.Context) error{
		"lost": func(context.Context) error { return errors.New("connection reset") },
		"late": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			s, h := newFakeStore(t, 0, inspect.AllowBreak(func(_, _ string) bool { return true }), inspect.Logger(slog.New(slog.NewTextHandler(&log, nil))))
			req := acquire(t, s.Store, store.Request{Name: "job"})
			s.breaking = func(ctx context.Context) error {
				s.Store.Break(ctx, "job", req.ID)
				return reply(ctx)
			}
			form := url.Values{"name": {"job"}, "id": {req.ID.String()}, "typed": {"job"}, "reason": {"stuck"}}
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/break", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.SetBasicAuth("ann", "x")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if body := w.Body.String(); !strings.Contains(body, "not known whether the lock was released") || strings.Contains(log.String(), "failed") {
				t.Errorf("%s: %s\nThe log: %s", what, body, &log)
			}
		})
	}
}

// A client can keep a connection busy by a body that it sends slowly, whether the page wants one or
// not.
func TestABodyThatIsTrickledIsDropped(t *testing.T) {
	for _, line := range []string{"GET /", "GET /events", "GET /static/style.css", "GET /nothing", "POST /", "POST /break"} {
		synctest.Test(t, func(t *testing.T) {
			_, h := newFakeStore(t, 0, inspect.AllowBreak(func(_, _ string) bool { return true }))
			begin := time.Now()
			conn := dial(t, h, line+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
			go func() {
				for {
					if _, err := conn.Write([]byte("x")); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
			conn.SetReadDeadline(begin.Add(time.Hour))
			io.Copy(io.Discard, conn)
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("%s: the connection was open for %v", line, took)
			}
			conn.Close()
		})
	}
}

// Whoever can write to the store chooses these texts.
func TestTextFromTheStoreAddsNoFieldToTheStream(t *testing.T) {
	const nasty = "x\rid: 7\rretry: 100000000\rdata: forged\r\n\r\nevent: y\r\r\u202e\u009b"
	s, h := newFakeStore(t, 0)
	acquire(t, s.Store, store.Request{Name: "job" + nasty, Owner: nasty, Meta: nasty})
	acquire(t, s.Store, store.Request{Name: "job" + nasty, Owner: nasty, Meta: nasty, Queue: true})
	for _, path := range []string{"/events", "/events?" + url.Values{"name": {"job" + nasty}}.Encode()} {
		stream := visit(t, h, path, time.Second).Body.String()
		for _, line := range regexp.MustCompile("\r\n|\r|\n").Split(stream, -1) {
			if line != "" && !strings.HasPrefix(line, "data: ") {
				t.Fatalf("%s: a line %q", path, line)
			}
		}
		if strings.ContainsAny(stream, "\u202e\u009b") || !strings.Contains(stream, `x\u000did: 7`) {
			t.Errorf("%s: %s", path, stream)
		}
	}
}

func TestTheBarKnowsTheTTLAndTheLastRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), holdfast.WithTTL(9*time.Second))
		lock(t, c, "job")
		h := inspect.Handler(c, inspect.Every(time.Second))
		begin := time.Now()
		bar := regexp.MustCompile(`<meter [^>]*value="(\d+)"`)
		lowest, highest, seen := 100, 0, 0
		for range 60 {
			body := visit(t, h, "/lock?name=job", time.Minute).Body.String()
			var value int
			if found := bar.FindStringSubmatch(body); found != nil {
				fmt.Sscan(found[1], &value)
			}
			lowest, highest = min(lowest, value), max(highest, value)
			renewed := strings.Contains(body, "seen at")
			if renewed && seen == 0 {
				seen = int(time.Since(begin) / time.Second)
			}
			time.Sleep(500 * time.Millisecond)
		}
		// Renewals happen after a third of the TTL, so the bar is between full and two thirds.
		if highest != 100 || lowest < 60 || lowest > 80 {
			t.Errorf("the bar is between %d and %d %%", lowest, highest)
		}
		if seen < 2 || seen > 6 {
			t.Errorf("the first renewal, after 3 seconds, was seen after %d", seen)
		}
		time.Sleep(time.Minute) // no page is open, so the listing ends
	})
}

func TestTheTimelineTellsExpiryFromRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), holdfast.WithTTL(10*time.Second))
		h := inspect.Handler(c)
		visit(t, h, "/", time.Minute)
		lock(t, c, "dead", holdfast.NoRenew())
		lease := lock(t, c, "done")
		for range 20 {
			time.Sleep(time.Second)
			visit(t, h, "/", time.Minute)
		}
		must(t, lease.Unlock(t.Context()))
		time.Sleep(3 * time.Second)
		for name, want := range map[string]string{"dead": "<b>expired</b>", "done": "<b>released</b>"} {
			if body := visit(t, h, "/lock?name="+name, time.Minute).Body.String(); !strings.Contains(body, want) {
				t.Errorf("%s: no %q in:\n%s", name, want, body)
			}
		}
		time.Sleep(time.Minute)
	})
}

func TestProblemsOfTheStoreAreShown(t *testing.T) {
	var runs atomic.Int64
	s := newSite(t, inspect.Checks(func(ctx context.Context) []store.Finding {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a check without a limit")
		}
		runs.Add(1)
		return []store.Finding{
			{ID: "store.clock", Found: "2 ms ahead"},
			{ID: "redis.eviction", Node: "node2", Level: store.LevelFailure, Found: "allkeys-lru <b>", Risk: "locks vanish", Remedy: "set noeviction"},
			{ID: "redis.version", Found: "7.0.15"},
		}
	}))
	body := s.eventually("", "redis.eviction")
	for _, want := range []string{"clock: 2 ms ahead", "node2: allkeys-lru &lt;b&gt;", "locks vanish", "set noeviction"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
	if strings.Contains(body, "redis.version") {
		t.Error("a check without a problem is shown")
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("checked %d times within a minute", n)
	}
}

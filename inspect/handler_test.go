package inspect_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/inspect"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

var newClient = suites.Client

// A site is an inspector on a server, with the client whose locks it shows.
type site struct {
	t      *testing.T
	store  *memstore.Store
	client *holdfast.Client
	base   string
	log    suites.Text
}

func newSite(t *testing.T, opts ...inspect.Option) *site {
	t.Helper()
	st := memstore.New()
	c := newClient(t, st, holdfast.WithOwner("web-1"))
	s := &site{t: t, store: st, client: c}
	opts = append([]inspect.Option{inspect.At("/locks"), inspect.Every(100 * time.Millisecond), inspect.Logger(slog.New(slog.NewTextHandler(&s.log, nil)))}, opts...)
	server := httptest.NewServer(inspect.Handler(c, opts...))
	s.base = server.URL + "/locks/"
	t.Cleanup(server.Close)
	return s
}

func (s *site) lock(name string, opts ...holdfast.CallOption) *holdfast.Lease {
	s.t.Helper()
	return lock(s.t, s.client, name, opts...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lock(t *testing.T, c *holdfast.Client, name string, opts ...holdfast.CallOption) *holdfast.Lease {
	t.Helper()
	lease, err := c.Lock(t.Context(), name, opts...)
	must(t, err)
	return lease
}

// acquire takes a lock for an hour, or queues if the request says so.
func acquire(t *testing.T, s store.Store, req store.Request) store.Request {
	t.Helper()
	req.ID, req.Mode, req.Weight, req.TTL, req.Tokens = store.NewID(), store.Exclusive, 1, time.Hour, 1
	if a, err := s.Acquire(t.Context(), req); err != nil || a.Granted() == req.Queue {
		t.Fatal(a, err)
	}
	return req
}

// do sends a request and returns the status and the body.
func (s *site) do(r *http.Request) (int, string) {
	s.t.Helper()
	reply, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	must(s.t, err)
	if policy := reply.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		s.t.Errorf("%s: Content-Security-Policy %q", r.URL, policy)
	}
	return reply.StatusCode, string(body)
}

func (s *site) get(path string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest("GET", s.base+path, nil)
	must(s.t, err)
	return s.do(r)
}

// eventually requests a page until it contains a text.
func (s *site) eventually(path, text string) string {
	s.t.Helper()
	var body string
	for begin := time.Now(); time.Since(begin) < suites.Patience; time.Sleep(20 * time.Millisecond) {
		if _, body = s.get(path); strings.Contains(body, text) {
			return body
		}
	}
	s.t.Fatalf("%s does not show %q:\n%s", path, text, body)
	return ""
}

// post sends a form with credentials. Head is a further header, as "key: value".
func (s *site) post(path string, form url.Values, password, head string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest("POST", s.base+path, strings.NewReader(form.Encode()))
	must(s.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if password != "" {
		r.SetBasicAuth("ann", password)
	}
	if key, value, ok := strings.Cut(head, ": "); ok {
		r.Header.Set(key, value)
	}
	return s.do(r)
}

func TestTheListShowsHoldersAndWaiters(t *testing.T) {
	s := newSite(t)
	lease := s.lock("order:42", holdfast.Meta("charge"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go s.client.RLock(ctx, "order:42")
	body := s.eventually("", "order:42")
	for _, want := range []string{"web-1", "charge", fmt.Sprint(lease.Token()), "exclusive", `href="/locks/lock?name=order%3a42"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in the list:\n%s", want, body)
		}
	}
	if _, body := s.get("?q=user:"); strings.Contains(body, "order:42") {
		t.Error("the list shows names without the prefix")
	}
	must(t, lease.Unlock(t.Context()))
}

func TestManyLocksArePaged(t *testing.T) {
	s := newSite(t)
	for i := range 250 {
		s.lock(fmt.Sprintf("n%03d", i))
	}
	body := s.eventually("?page=2", "n150")
	if strings.Contains(body, "n050") || strings.Contains(body, "n230") || !strings.Contains(body, "<b>250</b> locks") {
		t.Error("the second page is not that of the second hundred")
	}
	for _, page := range []string{"99999999999999999999", "-3", "x", "99"} {
		if status, _ := s.get("?page=" + page); status != http.StatusOK {
			t.Errorf("page %q: status %d", page, status)
		}
	}
}

func TestTheStreamSendsChanges(t *testing.T) {
	s := newSite(t)
	s.lock("first")
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.base+"events?q=", nil)
	must(t, err)
	reply, err := http.DefaultClient.Do(r)
	must(t, err)
	defer reply.Body.Close()
	if kind := reply.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("content type %q", kind)
	}
	lines := bufio.NewScanner(reply.Body)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if line := lines.Text(); line != "" && !strings.HasPrefix(line, "data: ") {
				t.Fatalf("line %q is no event", line)
			} else if strings.Contains(line, text) {
				return
			}
		}
		t.Fatalf("the stream ended without %q: %v", text, lines.Err())
	}
	until("first")
	s.lock("second")
	until("second")
}

func TestBreakingNeedsPermissionNameAndReason(t *testing.T) {
	allow := inspect.AllowBreak(func(user, password string) bool { return user == "ann" && password == "secret" })
	s := newSite(t, allow)
	lease := s.lock("job")
	form := func(typed, reason string) url.Values {
		return url.Values{"name": {"job"}, "id": {lease.ID().String()}, "typed": {typed}, "reason": {reason}}
	}
	good := form("job", "stuck since noon")
	for _, test := range []struct {
		what, password, head string
		form                 url.Values
		status               int
	}{
		{"no password", "", "", good, http.StatusUnauthorized},
		{"a wrong password", "guess", "", good, http.StatusUnauthorized},
		{"another site", "secret", "Sec-Fetch-Site: cross-site", good, http.StatusForbidden},
		{"another origin", "secret", "Origin: https://evil.example", good, http.StatusForbidden},
		{"another name typed", "secret", "", form("jobs", "stuck"), http.StatusUnprocessableEntity},
		{"no reason", "secret", "", form("job", " "), http.StatusUnprocessableEntity},
		{"a long reason", "secret", "", form("job", strings.Repeat("x", 501)), http.StatusUnprocessableEntity},
		{"a body without an end", "secret", "", form("job", strings.Repeat("x", 1<<20)), http.StatusBadRequest},
		{"no ID", "secret", "", url.Values{"name": {"job"}, "typed": {"job"}, "reason": {"x"}, "id": {"zz"}}, http.StatusBadRequest},
		{"another ID", "secret", "", url.Values{"name": {"job"}, "typed": {"job"}, "reason": {"x"}, "id": {strings.Repeat("0", 31) + "1"}}, http.StatusConflict},
	} {
		if status, body := s.post("break", test.form, test.password, test.head); status != test.status {
			t.Errorf("%s: status %d, want %d: %s", test.what, status, test.status, body)
		}
		if lease.Err() != nil {
			t.Fatalf("%s released the lock", test.what)
		}
	}
	const refused = "wrong user name or password"
	if log, _, _ := strings.Cut(s.log.String(), "\n"); !strings.Contains(log, refused) || !strings.Contains(log, "from=127.0.0.1:") ||
		strings.Contains(log, "ann") || strings.Contains(log, "guess") || strings.Count(s.log.String(), refused) != 1 {
		t.Errorf("the log, though a browser first asks without credentials: %s", &s.log)
	}
	status, body := s.post("break", good, "secret", "Origin: "+strings.TrimSuffix(s.base, "/locks/"))
	if status != http.StatusOK || !strings.Contains(body, "If it was held, its holder may still be running") {
		t.Errorf("status %d: %s", status, body)
	}
	if status, _ := s.post("break", good, "secret", ""); status != http.StatusConflict {
		t.Errorf("a second time: status %d", status)
	}
	if log := s.log.String(); !strings.Contains(log, "user=ann") || !strings.Contains(log, "stuck since noon") ||
		!strings.Contains(log, lease.ID().String()) || strings.Contains(log, "secret") || strings.Contains(log, "Basic") {
		t.Errorf("the log: %s", log)
	} else if n := strings.Count(log, "released by force"); n != 1 {
		t.Errorf("%d releases in the log, want 1: %s", n, log)
	}
	if info, err := s.client.Inspect(t.Context(), "job"); err != nil || len(info.Holders) != 0 {
		t.Errorf("still held: %+v, %v", info, err)
	}
}

func TestAnInspectorOnlyReadsUnlessTold(t *testing.T) {
	s := newSite(t)
	lease := s.lock("job")
	form := url.Values{"name": {"job"}, "id": {lease.ID().String()}, "typed": {"job"}, "reason": {"x"}}
	if status, _ := s.post("break", form, "secret", ""); status != http.StatusForbidden {
		t.Errorf("status %d", status)
	}
	if body := s.eventually("lock?name=job", "Held by"); strings.Contains(body, "by force") {
		t.Error("the page offers a forced release")
	}
}

func TestHealthTellsWhetherTheStoreAnswers(t *testing.T) {
	s := newSite(t)
	if status, body := s.get("healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("status %d: %s", status, body)
	}
	s.client.Close()
	s.eventually("healthz", "the store does not answer")
	if status, _ := s.get("healthz"); status != http.StatusServiceUnavailable {
		t.Errorf("closed: status %d", status)
	}
	if status, body := s.get(""); status != http.StatusBadGateway || !strings.Contains(body, "does not answer") {
		t.Errorf("closed: status %d: %s", status, body)
	}
}

func TestAHandlerCanBeMountedAnywhere(t *testing.T) {
	for _, path := range []string{"", "/", "locks", "/a/b/"} {
		c := newClient(t, memstore.New())
		h := inspect.Handler(c, inspect.At(path))
		base := strings.ReplaceAll("/"+strings.Trim(path, "/")+"/", "//", "/")
		w := visit(t, h, base, suites.Patience)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `href="`+base+`static/style.css"`) {
			t.Errorf("at %q: status %d:\n%s", path, w.Code, w.Body)
		}
		if base == "/" {
			continue
		}
		if w := visit(t, h, strings.TrimSuffix(base, "/"), suites.Patience); w.Header().Get("Location") != base {
			t.Errorf("at %q without the slash: status %d", path, w.Code)
		}
	}
}

func TestOtherPathsAndMethodsAreRefused(t *testing.T) {
	s := newSite(t)
	long := strings.Repeat("x", 513)
	for path, want := range map[string]int{
		"": http.StatusOK, "nothing": http.StatusNotFound, "../": http.StatusNotFound, "static/../handler.go": http.StatusNotFound,
		"static/style.css": http.StatusOK, "lock": http.StatusBadRequest, "lock?name=" + long: http.StatusBadRequest,
		"events?name=": http.StatusBadRequest, "events?name=" + long: http.StatusBadRequest,
		"?q=" + long: http.StatusBadRequest, "events?q=" + long: http.StatusBadRequest,
	} {
		if status, body := s.get(path); status != want || strings.Contains(body, long) {
			t.Errorf("%s: status %d, want %d: %s", path, status, want, body)
		}
	}
	if status, _ := s.post("", nil, "", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("POST of the list: status %d", status)
	}
}

// The store is listed once for all browsers, and not at all while no page is open.
func TestTheStoreIsListedOnceForAll(t *testing.T) {
	s := newSite(t, inspect.Every(time.Hour))
	s.lock("job")
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { s.get("") })
	}
	wg.Wait()
	s.eventually("", "job")
	s.lock("later")
	if _, again := s.get(""); !strings.Contains(again, "job") || strings.Contains(again, "later") {
		t.Error("the store was listed again before its time")
	}
}
